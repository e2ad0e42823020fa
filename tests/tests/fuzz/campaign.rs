//! Runs one fuzz target for its share of the available time.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sesame_proto::digest::sha256;

use super::edit::{Form, edited};

const TARGETS: u64 = 16;
/// Limit for a single input, which has at most 4 MiB.
const LONGEST: Duration = Duration::from_secs(60);
/// Maximum memory in bytes.
const MAX_MEMORY: u64 = 3 << 30;
const MAX_SHRINKS: usize = 500;

/// A tmpfs, on which fsync costs nothing.
const MEMORY: &str = "/dev/shm";

/// `Ok(true)` if the target parsed the input, `Ok(false)` if it rejected it. An `Err` fails the
/// test.
pub(crate) type Verdict = Result<bool, String>;

pub(crate) fn run(
    target: &str,
    form: Form,
    seeds: &[Vec<u8>],
    mut check: impl FnMut(&[u8]) -> Verdict,
) {
    assert!(!seeds.is_empty(), "{target}: no seeds");
    limit_memory();
    let current = Current::start(target);
    let mut verdict = |bytes: &[u8]| -> Verdict {
        current.begin(bytes);
        let verdict = catch_unwind(AssertUnwindSafe(|| check(bytes)));
        current.end();
        verdict.unwrap_or_else(|panic| Err(format!("panics: {}", words(&*panic))))
    };
    for (name, bytes) in found_before(target) {
        if let Err(why) = verdict(&bytes) {
            panic!("{target}: {} fails again: {why}", name.display());
        }
    }
    for (index, seed) in seeds.iter().enumerate() {
        if let Err(why) = verdict(seed) {
            panic!(
                "{target}: unmodified seed {index}: {why}\n{}",
                keep(target, seed)
            );
        }
    }
    let number = seed();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = edited(form);
    let (start, time) = (Instant::now(), share());
    let (mut tried, mut understood) = (0u64, 0u64);
    while start.elapsed() < time {
        let mut tree = strategy.new_tree(&mut runner).expect("nothing is filtered");
        match verdict(&tree.current().bytes(seeds)) {
            Ok(was_understood) => understood += u64::from(was_understood),
            Err(mut why) => {
                let mut smallest = tree.current().bytes(seeds);
                let mut left = MAX_SHRINKS;
                let mut moved = tree.simplify();
                while moved && left > 0 {
                    left -= 1;
                    let bytes = tree.current().bytes(seeds);
                    moved = match verdict(&bytes) {
                        Err(other) => {
                            (smallest, why) = (bytes, other);
                            tree.simplify()
                        }
                        Ok(_) => tree.complicate(),
                    };
                }
                panic!(
                    "{target}, SESAME_SEED={number}: {why}\n{}",
                    keep(target, &smallest)
                );
            }
        }
        tried += 1;
    }
    eprintln!(
        "{target}: {tried} inputs in {:?}, {understood} parsed, SESAME_SEED={number}",
        start.elapsed()
    );
}

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(MEMORY).expect("a directory")
}

/// Returns `$SESAME_SEED`, or a constant.
fn seed() -> u64 {
    let given = std::env::var("SESAME_SEED").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn share() -> Duration {
    let given = std::env::var("FUZZ_SECONDS").ok();
    let all = given.and_then(|text| text.parse().ok()).unwrap_or(60);
    Duration::from_secs(all) / u32::try_from(TARGETS).unwrap_or(1)
}

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz")
        .join(target)
}

fn found_before(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory(target)).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("the stored input is readable");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

fn keep(target: &str, bytes: &[u8]) -> String {
    let directory = directory(target);
    let path = directory.join(sha256(bytes).get(..12).unwrap_or_default());
    let kept = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, bytes));
    match kept {
        Ok(()) => format!("kept as {}", path.display()),
        Err(error) => format!("{}: {error}: {bytes:?}", path.display()),
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// An allocation beyond the limit aborts the process, but leaves the input on disk; see
/// [`Current`].
fn limit_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| setrlimit(Resource::RLIMIT_DATA, MAX_MEMORY, MAX_MEMORY).expect("a limit"));
}

/// The input is also on disk, because it may kill the process.
struct Current {
    path: PathBuf,
    file: File,
    since: Arc<Mutex<Option<Instant>>>,
}

impl Current {
    fn start(target: &str) -> Self {
        let path = Path::new(MEMORY).join(format!("sesame-fuzz-{target}-{}", std::process::id()));
        let since = Arc::new(Mutex::new(None));
        let (watched, shown) = (Arc::downgrade(&since), path.clone());
        std::thread::spawn(move || {
            while let Some(since) = watched.upgrade() {
                let start: Option<Instant> = *since
                    .lock()
                    .expect("no thread panics while holding this lock");
                drop(since);
                if start.is_some_and(|start| start.elapsed() > LONGEST) {
                    eprintln!(
                        "{}: this input takes longer than {LONGEST:?}",
                        shown.display()
                    );
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let file = File::create(&path).expect("a file for the input");
        Self { path, file, since }
    }

    fn begin(&self, bytes: &[u8]) {
        let written = self.file.write_all_at(bytes, 0);
        let cut = written.and_then(|()| self.file.set_len(bytes.len() as u64));
        cut.expect("write the input");
        *self
            .since
            .lock()
            .expect("no thread panics while holding this lock") = Some(Instant::now());
    }

    fn end(&self) {
        *self
            .since
            .lock()
            .expect("no thread panics while holding this lock") = None;
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
