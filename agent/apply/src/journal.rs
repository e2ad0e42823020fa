//! Replaces Envoy's files on disk by rename, and keeps their previous versions until Envoy has
//! accepted the whole transaction. If the agent is killed before that, the next agent restores
//! them.
//!
//! Never remove a directory while Envoy may watch it: an inotify watch is bound to the inode. Envoy
//! 1.40 does not reject a half-written `.pb` file, but removes all resources that the file lacks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sesame_files::open::{self, Rule};

use super::on_disk::MAX_FILE;
use sesame_host::{
    create_directory, entries, remove_directory_if_exists, remove_if_exists, replace_file,
    write_file,
};
use sesame_render::layout::{XdsLayout, file_name};
use sesame_render::xds::response::{encode_members, encode_shares};
use sesame_render::xds::{Subscription, XdsKind};
use sesame_render::{fleet_members, no_shares};

const ABSENT: &str = "absent";

#[derive(Debug)]
pub(crate) struct Files {
    layout: XdsLayout,
    entries: Vec<JournalEntry>,
    next: u64,
    /// Shares in the shares file, or `None` if unknown.
    shares: Option<Bytes>,
    /// Number of hosts in the fleet's file, or `None` if unknown.
    fleet_hosts: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalEntry {
    pub(crate) kind: XdsKind,
    pub(crate) path: PathBuf,
    /// Previous version, or an empty marker if the file did not exist.
    saved: PathBuf,
    pub(crate) existed: bool,
}

impl Files {
    pub(crate) fn open(layout: XdsLayout) -> io::Result<Self> {
        remove_directory_if_exists(&layout.staging().join("dropped"))?;
        for directory in [
            "", "lds", "cds", "rds", "eds", "sds", "ecds", "rtds", "fleet", "tmp", "tmp/undo",
        ] {
            create_directory(&layout.root().join(directory))?;
        }
        let mut files = Self {
            layout,
            entries: Vec::new(),
            next: 0,
            shares: None,
            fleet_hosts: None,
        };
        // Envoy does not start if a watched file is missing.
        if !files.layout.rtds().exists() {
            files.share_out(&no_shares())?;
        }
        if !files.layout.fleet().exists() {
            files.count_hosts(1)?;
        }
        // Envoy never reads staged files, so remove leftovers.
        for path in entries(&files.layout.staging())? {
            if !path.is_dir() {
                fs::remove_file(path)?;
            }
        }
        for saved in entries(&files.journal())? {
            if let Some((number, entry)) = files.parse(&saved) {
                files.next = files.next.max(number.saturating_add(1));
                files.entries.push(entry);
            } else if !saved.is_dir() {
                fs::remove_file(saved)?;
            }
        }
        Ok(files)
    }

    pub(crate) fn layout(&self) -> &XdsLayout {
        &self.layout
    }

    /// Returns the entries, oldest first.
    pub(crate) fn entries(&self) -> &[JournalEntry] {
        &self.entries
    }

    pub(crate) fn write(&mut self, subscription: &Subscription, bytes: &[u8]) -> io::Result<()> {
        let path = subscription.path(&self.layout);
        if let Some(parent) = path.parent() {
            create_directory(parent)?;
        }
        self.save(subscription, &path)?;
        self.place(&path, bytes)
    }

    /// Bypasses the journal.
    pub(crate) fn place(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        replace_file(path, &self.layout.staging().join("new"), bytes)
    }

    /// Rewrites a file unchanged to make Envoy reread it.
    pub(crate) fn place_again(&self, subscription: &Subscription) -> io::Result<()> {
        let path = subscription.path(&self.layout);
        if !path.try_exists()? {
            return Ok(());
        }
        let bytes = open::read(&path, Rule::Own, MAX_FILE).map_err(io::Error::from)?;
        self.place(&path, &bytes)
    }

    /// Bypasses the journal.
    pub(crate) fn share_out(&mut self, shares: &Bytes) -> io::Result<()> {
        if !shares.is_empty() && self.shares.as_ref() != Some(shares) {
            let file = encode_shares(shares);
            self.place(&self.layout.rtds(), &file.bytes)?;
            self.shares = Some(shares.clone());
        }
        Ok(())
    }

    /// Bypasses the journal. Keeps the last number if the new one is unknown.
    pub(crate) fn count_hosts(&mut self, hosts: u32) -> io::Result<()> {
        if hosts > 0 && self.fleet_hosts != Some(hosts) {
            let file = encode_members(fleet_members(hosts));
            self.place(&self.layout.fleet(), &file.bytes)?;
            self.fleet_hosts = Some(hosts);
        }
        Ok(())
    }

    /// Rewrites both files next time, because another program may have changed them.
    pub(crate) fn forget_shares(&mut self) {
        self.shares = None;
        self.fleet_hosts = None;
    }

    /// Keeps the file's directory, because a draining listener may be watching it.
    pub(crate) fn remove(&mut self, subscription: &Subscription) -> io::Result<()> {
        let path = subscription.path(&self.layout);
        self.save(subscription, &path)?;
        remove_if_exists(&path)
    }

    /// Returns `None` if the journal is empty.
    pub(crate) fn undo(&mut self) -> io::Result<Option<JournalEntry>> {
        let Some(entry) = self.entries.last() else {
            return Ok(None);
        };
        if entry.existed {
            if let Some(parent) = entry.path.parent() {
                create_directory(parent)?;
            }
            fs::rename(&entry.saved, &entry.path)?;
        } else {
            remove_if_exists(&entry.path)?;
        }
        // `rename` does nothing if both paths are hard links to one inode, which an agent crash can
        // leave behind.
        remove_if_exists(&entry.saved)?;
        Ok(self.entries.pop())
    }

    /// Must be called only after Envoy has accepted everything. A single rename drops all entries,
    /// because a partial journal would undo only part of a transaction.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let dropped = self.layout.staging().join("dropped");
        // An earlier commit may have failed to delete this directory.
        remove_directory_if_exists(&dropped)?;
        fs::rename(self.journal(), &dropped)?;
        self.entries.clear();
        create_directory(&self.journal())?;
        fs::remove_dir_all(dropped)
    }

    /// Must not be called while Envoy is running, because Envoy would lose the inotify watch on a
    /// removed directory.
    pub(crate) fn remove_empty_directories(&self) -> io::Result<()> {
        for kind in XdsKind::LEAVES {
            for directory in entries(&self.layout.root().join(kind.directory()))? {
                match fs::remove_dir(&directory) {
                    Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn journal(&self) -> PathBuf {
        self.layout.staging().join("undo")
    }

    fn save(&mut self, subscription: &Subscription, path: &Path) -> io::Result<()> {
        let kind = subscription.kind;
        // An earlier commit may have failed to recreate the directory, for example on a full disk.
        create_directory(&self.journal())?;
        let existed = path.try_exists()?;
        let leaf = if kind.is_list() {
            "all".to_owned()
        } else {
            file_name(&subscription.name)
        };
        let suffix = if existed { "pb" } else { ABSENT };
        let saved = self.journal().join(format!(
            "{:010}.{}.{leaf}.{suffix}",
            self.next,
            kind.directory()
        ));
        if existed {
            fs::hard_link(path, &saved)?;
        } else {
            write_file(&saved, &[])?;
        }
        self.next = self.next.saturating_add(1);
        self.entries.push(JournalEntry {
            kind,
            path: path.to_owned(),
            saved,
            existed,
        });
        Ok(())
    }

    fn parse(&self, saved: &Path) -> Option<(u64, JournalEntry)> {
        let name = saved.file_name()?.to_str()?;
        let mut parts = name.split('.');
        let number = parts.next()?.parse().ok()?;
        let kind = XdsKind::from_directory(parts.next()?)?;
        let leaf = parts.next()?;
        let suffix = parts.next()?;
        let path = if kind.is_list() {
            Subscription::new(kind, "").path(&self.layout)
        } else {
            if leaf.len() != 32 || !leaf.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            let mut path = self.layout.root().join(kind.directory());
            path.push(leaf);
            path.push(format!("{}.pb", kind.directory()));
            path
        };
        Some((
            number,
            JournalEntry {
                kind,
                path,
                saved: saved.to_owned(),
                existed: suffix != ABSENT,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn route_table(name: &str) -> Subscription {
        Subscription::new(XdsKind::RouteTable, name)
    }

    fn content(files: &Files, name: &str) -> Option<String> {
        fs::read_to_string(route_table(name).path(files.layout())).ok()
    }

    #[test]
    fn changes_are_undone_in_reverse_after_restart() {
        let root = tempfile::tempdir().unwrap();
        let layout = XdsLayout::new(root.path().join("xds"));
        let mut files = Files::open(layout.clone()).unwrap();
        files.write(&route_table("a"), b"1").unwrap();
        files.write(&route_table("gone"), b"1").unwrap();
        files.commit().unwrap();

        files.write(&route_table("a"), b"2").unwrap();
        files.write(&route_table("b"), b"1").unwrap();
        files.write(&route_table("a"), b"3").unwrap();
        files.remove(&route_table("gone")).unwrap();
        drop(files);

        let mut files = Files::open(layout).unwrap();
        assert_eq!(files.entries().len(), 4);
        assert_eq!(content(&files, "gone"), None);
        files.undo().unwrap();
        assert_eq!(content(&files, "gone").as_deref(), Some("1"));
        files.undo().unwrap();
        assert_eq!(content(&files, "a").as_deref(), Some("2"));
        files.undo().unwrap();
        assert_eq!(content(&files, "b"), None);
        files.undo().unwrap();
        assert_eq!(content(&files, "a").as_deref(), Some("1"));
        assert_eq!(files.undo().unwrap(), None);
        assert!(entries(&files.journal()).unwrap().is_empty());
    }

    #[test]
    fn journal_files_are_private() {
        let root = tempfile::tempdir().unwrap();
        let mut files = Files::open(XdsLayout::new(root.path().join("xds"))).unwrap();
        let secret = Subscription::new(XdsKind::Secret, "s");
        files.write(&secret, b"key").unwrap();
        files.write(&secret, b"key 2").unwrap();
        let mut pending = vec![root.path().join("xds")];
        while let Some(path) = pending.pop() {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{path:?}");
            if path.is_dir() {
                pending.extend(entries(&path).unwrap());
            }
        }
    }

    #[test]
    fn watched_directory_is_kept_when_emptied() {
        use std::os::unix::fs::MetadataExt as _;
        let root = tempfile::tempdir().unwrap();
        let mut files = Files::open(XdsLayout::new(root.path())).unwrap();
        files.write(&route_table("a"), b"1").unwrap();
        let directory = route_table("a").path(files.layout());
        let inode = || fs::metadata(directory.parent().unwrap()).unwrap().ino();
        let before = inode();
        files.remove(&route_table("a")).unwrap();
        files.commit().unwrap();
        files.write(&route_table("a"), b"2").unwrap();
        assert_eq!(inode(), before);
    }
}
