//! Builds a [`World`] from a directory of Gateway API manifests.
//!
//! If a document is broken, its last good version remains in use. An object is removed only if its
//! document or file is deleted, or a later good version no longer contains the object. Never writes
//! to the directory, and never blocks on a file.

mod claims;
mod file;
mod limits;
mod local_objects;
mod objects;
mod read;
pub mod tree;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sesame_kinds::world::{
    AnyObject, LastGoodKeys, LastParameters, ObjectKey, ServedTogether, World,
};

pub use self::limits::ReadLimits;

use self::file::{Documents, FileContent, ManifestFile};
use self::objects::KeyedObject;
use self::tree::{Found, Stamp, Tree};
use super::last_good::LastGood;
use super::problem::{Severity, SourceProblem};

/// Delay before a scan that repeats failed reads.
const RETRY: Duration = Duration::from_secs(1);

/// Outcome of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// False if the directory is missing. The world then keeps its previous content.
    pub available: bool,
    /// Added, removed or changed objects, sorted.
    pub changed: Vec<ObjectKey>,
    /// All current problems, sorted.
    pub problems: Arc<[SourceProblem]>,
    /// When to scan again, although nothing changes.
    pub again: Option<Duration>,
}

/// The directory as of the last scan.
#[derive(Debug)]
pub struct Manifests {
    root: PathBuf,
    limits: ReadLimits,
    store: LastGood,
    documents: Documents,
    dirs: BTreeMap<PathBuf, tree::Id>,
    files: BTreeMap<Arc<Path>, Box<ManifestFile>>,
    total_bytes: u64,
    /// For each object, the first file by path that declares it.
    owners: BTreeMap<KeyedObject, Arc<Path>>,
    /// Objects that several files declare, with the files' sorted paths.
    contested: BTreeMap<KeyedObject, Vec<Arc<Path>>>,
    world: World,
    local: Vec<AnyObject>,
    /// Created for certificate orders.
    ordered: Vec<AnyObject>,
    /// Objects in `world` that came from `ordered`.
    ordered_keys: BTreeSet<ObjectKey>,
    tree_problems: Vec<SourceProblem>,
    retry_tree: bool,
    /// Good files that are not stored yet, and removed files that may still be stored.
    unsaved: BTreeSet<Arc<Path>>,
    /// The store may still contain files that were removed while no agent ran.
    store_unswept: bool,
    available: bool,
}

impl Manifests {
    /// `root` need not exist yet. Each source needs its own `store`.
    pub fn new(root: impl Into<PathBuf>, store: LastGood) -> Self {
        Self::with_limits(root, store, ReadLimits::default())
    }

    /// Like [`Manifests::new`], with other limits.
    pub fn with_limits(root: impl Into<PathBuf>, store: LastGood, limits: ReadLimits) -> Self {
        let root = root.into();
        Self {
            // Events contain absolute paths, and the working directory may change.
            root: std::path::absolute(&root).unwrap_or(root),
            limits,
            store,
            documents: Documents::new(limits.document),
            dirs: BTreeMap::new(),
            files: BTreeMap::new(),
            total_bytes: 0,
            owners: BTreeMap::new(),
            contested: BTreeMap::new(),
            world: World::default(),
            local: Vec::new(),
            ordered: Vec::new(),
            ordered_keys: BTreeSet::new(),
            tree_problems: Vec::new(),
            retry_tree: false,
            unsaved: BTreeSet::new(),
            store_unswept: true,
            available: false,
        }
    }

    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the objects in use.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Passes results of the last resolution to the next one: good keys, and objects served
    /// together.
    pub fn keep(&mut self, last_good: LastGoodKeys, served_together: ServedTogether) {
        self.world.last_good.replace(last_good);
        self.world.served_together = served_together;
    }

    /// Passes the last valid parameters to the next resolution.
    pub fn keep_parameters(&mut self, parameters: LastParameters) {
        self.world.last_parameters = parameters;
    }

    /// Returns the file (relative to the directory) and line that declare an object in use.
    pub fn location(&self, object: &ObjectKey) -> Option<(&Path, usize)> {
        let object = KeyedObject(self.world.get(object)?);
        let path = self.owners.get(&object)?;
        let (_, line) = self.files.get(path)?.objects.get(&object)?;
        Some((path, *line))
    }

    /// Returns the number of manifests in use.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Scans the whole directory, and reads the files that have changed.
    pub fn scan(&mut self) -> ScanReport {
        self.scan_tree(&BTreeSet::new(), BTreeSet::new())
    }

    /// Reads these files again. Paths are absolute or relative to the root. Scans the whole
    /// directory unless each path is a changed manifest in a known directory.
    pub fn rescan_paths(&mut self, paths: &[PathBuf]) -> ScanReport {
        let mut all = !self.available;
        let mut read = BTreeSet::new();
        for path in paths {
            match self.judge(path) {
                PathScope::Manifest(path) => {
                    read.insert(path);
                }
                PathScope::Nothing => {}
                PathScope::Tree => all = true,
            }
        }
        let mut changed = BTreeSet::new();
        if all {
            return self.scan_tree(&read, changed);
        }
        while let Some(path) = read.pop_first() {
            match tree::inspect(&self.root.join(&path)) {
                Found::File(_) if self.files.contains_key(&path) || self.has_room() => {
                    self.read(&path, &mut changed);
                }
                Found::Gone if self.parent_stands(&path) => self.forget(&path, &mut changed),
                // The path may be a directory, a fifo, a dangling link, or over the limit. A
                // missing root must not be treated as an empty configuration.
                _ => return self.scan_tree(&read, changed),
            }
        }
        self.report(&changed)
    }

    /// Stores good files, in case they are broken at the next start. Call this only after the world
    /// has been delivered.
    pub fn persist_last_good(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        for path in std::mem::take(&mut self.unsaved) {
            if let Err(error) = self.persist(&path) {
                self.unsaved.insert(path);
                outcome = Err(error);
            }
        }
        if self.available && std::mem::take(&mut self.store_unswept) {
            self.store.retain(self.files.keys().map(AsRef::as_ref))?;
        }
        outcome
    }

    fn persist(&self, path: &Path) -> io::Result<()> {
        let Some(file) = self.files.get(path) else {
            return self.store.remove(path);
        };
        let place = self.root.join(path);
        let text = read::read(&place, self.within().as_deref(), self.limits.file_bytes);
        match text {
            // If a file changed after it was parsed, the next scan reads it and marks it as
            // unsaved.
            Ok((text, _)) if file.good && file.digest == Some(file::digest(&text)) => {
                self.store.save(path, &text)
            }
            _ => Ok(()),
        }
    }

    fn judge(&self, path: &Path) -> PathScope {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let mut parts = relative.components();
        for part in parts.clone() {
            let Component::Normal(name) = part else {
                return PathScope::Tree;
            };
            if tree::is_hidden(name) {
                // A name such as `..data` means that a mounted volume was updated.
                let swap = name.as_encoded_bytes().starts_with(b"..");
                return if swap {
                    PathScope::Tree
                } else {
                    PathScope::Nothing
                };
            }
        }
        let Some(Component::Normal(name)) = parts.next_back() else {
            return PathScope::Tree;
        };
        let known = relative
            .parent()
            .is_some_and(|parent| self.dirs.contains_key(parent));
        let shown = relative.to_string_lossy();
        if !known
            || self.dirs.contains_key(relative)
            || self
                .tree_problems
                .iter()
                .any(|problem| problem.file == shown)
        {
            return PathScope::Tree;
        }
        if tree::is_manifest(name) {
            return PathScope::Manifest(relative.into());
        }
        match tree::inspect(&self.root.join(relative)) {
            Found::Dir(_) => PathScope::Tree,
            _ => PathScope::Nothing,
        }
    }

    fn parent_stands(&self, path: &Path) -> bool {
        let parent = path.parent().unwrap_or(Path::new(""));
        matches!(tree::inspect(&self.root.join(parent)), Found::Dir(id) if self.dirs.get(parent) == Some(&id))
    }

    fn has_room(&self) -> bool {
        self.files.len() < self.limits.files
    }

    fn scan_tree(
        &mut self,
        read: &BTreeSet<Arc<Path>>,
        mut changed: BTreeSet<KeyedObject>,
    ) -> ScanReport {
        let tree = match tree::walk(&self.root, &self.limits) {
            Ok(tree) => tree,
            Err(error) => {
                self.available = false;
                self.retry_tree = tree::may_pass(&error);
                let stays = if self.world.is_empty() {
                    ""
                } else {
                    "; its previous objects remain in use"
                };
                let message = format!("{} cannot be read: {error}{stays}", self.root.display());
                self.tree_problems = vec![SourceProblem::of_file(Severity::Error, "", message)];
                return self.report(&changed);
            }
        };
        self.available = true;
        let Tree {
            dirs,
            files,
            unreadable,
            retry,
            problems,
        } = tree;
        self.retry_tree = retry;
        self.dirs = dirs;
        self.tree_problems = problems;
        let (dirty, gone) = self.compare(files, read);
        for path in gone {
            if !unreadable.iter().any(|kept| path.starts_with(kept)) {
                self.forget(&path, &mut changed);
            }
        }
        for path in dirty {
            self.read(&path, &mut changed);
        }
        self.report(&changed)
    }

    /// Both inputs are sorted by path, so one pass is enough.
    fn compare(
        &self,
        files: Vec<(Arc<Path>, Stamp)>,
        read: &BTreeSet<Arc<Path>>,
    ) -> (Vec<Arc<Path>>, Vec<Arc<Path>>) {
        let (mut dirty, mut gone) = (Vec::new(), Vec::new());
        let mut known = self.files.iter().peekable();
        for (path, stamp) in files {
            while let Some((old, _)) = known.next_if(|(old, _)| **old < path) {
                gone.push(old.clone());
            }
            let same = known.next_if(|(old, _)| **old == path);
            let clean = same.is_some_and(|(_, file)| file.stamp == Some(stamp));
            if !clean || read.contains(&path) {
                dirty.push(path);
            }
        }
        gone.extend(known.map(|(old, _)| old.clone()));
        (dirty, gone)
    }

    /// Returns `None` if links may point outside the root.
    fn within(&self) -> Option<PathBuf> {
        let root = || fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
        (!self.limits.links_out).then(root)
    }

    fn read(&mut self, path: &Arc<Path>, changed: &mut BTreeSet<KeyedObject>) {
        let place = self.root.join(path);
        let outcome = read::read(&place, self.within().as_deref(), self.limits.file_bytes);
        let file = self.files.entry(path.clone()).or_default();
        file.retry = outcome.as_ref().is_err_and(|unread| unread.retry);
        let others = self.total_bytes - file.size;
        let (content, stamp) = match &outcome {
            Ok((text, stamp)) if others + stamp.size <= self.limits.total_bytes => {
                (FileContent::Text(text), Some(*stamp))
            }
            Ok((_, stamp)) => {
                let reason = format!(
                    "would exceed {} bytes of manifests; it is not read",
                    self.limits.total_bytes
                );
                (FileContent::Unreadable(reason), Some(*stamp))
            }
            Err(unread) => (FileContent::Unreadable(unread.reason.clone()), None),
        };
        // Without a stamp, the next scan rereads the file.
        file.stamp = stamp.filter(|stamp| !stamp.is_fresh());
        if let FileContent::Text(text) = content {
            let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
            self.total_bytes = others.saturating_add(size);
            file.size = size;
            if file.digest.is_some_and(|known| known == file::digest(text)) && !file.unread {
                return;
            }
        }
        let store = &self.store;
        let limit = self.limits.file_bytes;
        let before = |documents: &mut Documents| {
            let text = store.load(path, limit);
            text.map(|text| file::objects(&text, documents))
                .unwrap_or_default()
        };
        file.unread = matches!(content, FileContent::Unreadable(_));
        let keys = file.update(path, &content, &mut self.documents, before);
        if file.good {
            self.unsaved.insert(path.clone());
        }
        self.claim(path, keys, changed);
    }

    fn forget(&mut self, path: &Arc<Path>, changed: &mut BTreeSet<KeyedObject>) {
        let Some(file) = self.files.remove(path) else {
            return;
        };
        self.total_bytes -= file.size;
        self.unsaved.insert(path.clone());
        self.claim(path, file.objects.iter().cloned().collect(), changed);
    }

    fn report(&mut self, changed: &BTreeSet<KeyedObject>) -> ScanReport {
        let held = self.files.values().map(|file| file.documents()).sum();
        self.documents.collect(held);
        let local = self.put_local_objects();
        let ordered = self.put_ordered_objects();
        let declared = changed.iter().map(KeyedObject::key);
        let keys: BTreeSet<ObjectKey> = declared.chain(local).chain(ordered).collect();
        ScanReport {
            available: self.available,
            changed: keys.into_iter().collect(),
            problems: self.problems().into(),
            again: (self.retry_tree || self.files.values().any(|file| file.retry)).then_some(RETRY),
        }
    }
}

enum PathScope {
    Manifest(Arc<Path>),
    Tree,
    Nothing,
}
