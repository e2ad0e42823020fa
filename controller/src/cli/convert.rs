//! `sesame-controller convert`: converts another gateway's objects.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::Value;
use sesame_kinds::decode::{DecodeLimits, parse_untyped, split};

use sesame_convert::{Conversion, FORMATS};

/// Maximum size of all input files together.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of files in a directory.
const MAX_FILES: usize = 10_000;
const MAX_OBJECTS: usize = 20_000;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Arguments for `convert`.
#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    /// The other gateway
    #[arg(long, value_name = "GATEWAY", value_parser = format_names())]
    from: String,
    /// File, directory, or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Directory for the converted objects; existing files are never overwritten. By default, the
    /// objects are printed, and the report goes to standard error
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Report format
    #[arg(long, value_enum, default_value_t = ConversionReport::Table)]
    report: ConversionReport,
    /// Field of any object, KIND/NAMESPACE/NAME of an object, or KIND/NAMESPACE/NAME:FIELD, to
    /// convert without an unsupported protection; repeatable
    #[arg(long, value_name = "NAME")]
    accept_loss: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConversionReport {
    /// Human-readable text
    Table,
    /// One JSON object
    Json,
    /// Markdown, for a change request
    Markdown,
}

fn format_names() -> PossibleValuesParser {
    PossibleValuesParser::new(FORMATS.iter().map(|format| format.name))
}

/// Returns true if everything was converted.
pub(super) fn main(args: &ConvertArgs) -> Result<bool> {
    let format = FORMATS.iter().find(|format| format.name == args.from);
    let format = format.with_context(|| format!("--from {:?} is unknown", args.from))?;
    let mut budget = MAX_BYTES;
    let mut objects = Vec::new();
    for path in inputs(&args.files)? {
        let text = read(&path, &mut budget)?;
        parse(&path, &text, &mut objects)?;
    }
    let conversion = sesame_convert::convert(format, &objects, &args.accept_loss);
    let report = report(args.report, &conversion);
    let files = sesame_convert::files(&conversion).map_err(|error| anyhow!(error))?;
    if let Some(dir) = &args.output_dir {
        write_files(
            dir,
            files
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str())),
        )?;
        super::output(report.as_bytes())?;
    } else {
        let texts: Vec<&str> = files.values().map(String::as_str).collect();
        super::output(texts.join("---\n").as_bytes())?;
        write!(std::io::stderr().lock(), "{report}")?;
    }
    Ok(conversion.is_complete())
}

fn report(format: ConversionReport, conversion: &Conversion) -> String {
    match format {
        ConversionReport::Table => sesame_convert::as_table(conversion),
        ConversionReport::Json => format!("{:#}\n", sesame_convert::as_json(conversion)),
        ConversionReport::Markdown => sesame_convert::as_markdown(conversion),
    }
}

/// Replaces directories with their files, sorted.
fn inputs(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let at = || path.display().to_string();
        if path.as_os_str() == "-" || !fs::metadata(path).with_context(at)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(path).with_context(at)? {
            let file = entry.with_context(at)?.path();
            let name = file.file_name();
            let is_hidden = name.is_some_and(|it| it.to_string_lossy().starts_with('.'));
            // Policies in an unread directory would be lost without a report.
            ensure!(
                is_hidden || !file.is_dir(),
                "{}: subdirectories are not read; pass each directory, or single files, with \
                --filename",
                file.display()
            );
            let extension = file.extension().and_then(|extension| extension.to_str());
            if extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
                found.push(file);
            }
            ensure!(
                found.len() <= MAX_FILES,
                "{}: more than {MAX_FILES} files",
                at()
            );
        }
        ensure!(!found.is_empty(), "{}: no .yaml, .yml or .json file", at());
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

fn read(path: &Path, budget: &mut u64) -> Result<String> {
    let at = || path.display().to_string();
    let mut text = String::new();
    let most = *budget + 1;
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_string(&mut text)
    } else {
        File::open(path)
            .with_context(at)?
            .take(most)
            .read_to_string(&mut text)
    }
    .with_context(at)?;
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    *budget = budget
        .checked_sub(bytes)
        .with_context(|| format!("{}: more than {MAX_BYTES} bytes of input", at()))?;
    Ok(text)
}

/// Adds the objects in a file, including the items of lists.
fn parse(path: &Path, text: &str, objects: &mut Vec<Value>) -> Result<()> {
    let limits = DecodeLimits::default();
    for document in split(text) {
        let at = || format!("{}, document at line {}", path.display(), document.line);
        let most = limits.list_bytes;
        ensure!(
            document.text.len() <= most,
            "{}: more than {most} bytes",
            at()
        );
        let value = parse_untyped(document.text, &limits)
            .map_err(|error| anyhow!("{}: {}", at(), error.reason))?;
        let is_list = value["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        match value {
            Value::Object(mut list) if is_list => match list.remove("items") {
                Some(Value::Array(items)) => objects.extend(items),
                _ => bail!("{}: a list without items", at()),
            },
            other => objects.push(other),
        }
        ensure!(
            objects.len() <= MAX_OBJECTS,
            "more than {MAX_OBJECTS} objects"
        );
    }
    let named = |object: &Value| {
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        is_text(&object["kind"])
            && is_text(&object["apiVersion"])
            && is_text(&object["metadata"]["name"])
    };
    ensure!(
        objects.iter().all(named),
        "{}: expected objects with apiVersion, kind and metadata.name",
        path.display()
    );
    Ok(())
}

/// Writes nothing if one of the files exists.
fn write_files<'a>(
    dir: &Path,
    files: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for (name, _) in files.clone() {
        let path = dir.join(name);
        let exists = path.symlink_metadata().is_ok();
        ensure!(
            !exists,
            "{} exists; choose an empty directory",
            path.display()
        );
    }
    for (name, text) in files {
        let path = dir.join(name);
        let at = || path.display().to_string();
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.with_context(at)?
            .write_all(text.as_bytes())
            .with_context(at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: login, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}]
  oidc: {clientID: shop}
";

    fn args(dir: &Path, accept_loss: &[&str]) -> ConvertArgs {
        ConvertArgs {
            from: "envoy-gateway".to_owned(),
            files: vec![dir.join("in")],
            output_dir: Some(dir.join("out")),
            report: ConversionReport::Json,
            accept_loss: accept_loss.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn refused_protection_fails_unless_accepted() {
        for (accepted, complete) in [
            (&[][..], false),
            (&["oidc"], true),
            (&["SecurityPolicy/shop/login"], true),
            (&["jwt"], false),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let dir = directory.path();
            fs::create_dir(dir.join("in")).expect("a directory");
            fs::write(dir.join("in/all.yaml"), INPUT).expect("a file");
            let done = main(&args(dir, accepted)).expect("a conversion");
            assert_eq!(done, complete, "{accepted:?}");
            let class = fs::read_to_string(dir.join("out/gatewayclasses.yaml")).expect("a file");
            assert!(
                class.contains("projectsesame.io/gateway-controller"),
                "{class}"
            );
        }
    }

    #[test]
    fn subdirectory_is_an_error_unless_hidden() {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = directory.path();
        fs::create_dir_all(dir.join(".git")).expect("a directory");
        fs::write(dir.join("all.yaml"), INPUT).expect("a file");
        let paths = [dir.to_owned()];
        assert_eq!(inputs(&paths).expect("files"), [dir.join("all.yaml")]);
        fs::create_dir(dir.join("policies")).expect("a directory");
        let error = inputs(&paths).expect_err("a subdirectory").to_string();
        assert!(error.contains("policies: subdirectories"), "{error}");
    }

    #[test]
    fn existing_file_is_not_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = directory.path();
        fs::create_dir(dir.join("in")).expect("a directory");
        fs::create_dir(dir.join("out")).expect("a directory");
        fs::write(dir.join("in/all.yaml"), INPUT).expect("a file");
        fs::write(dir.join("out/gatewayclasses.yaml"), "mine").expect("a file");
        assert!(main(&args(dir, &[])).is_err());
        let mine = fs::read_to_string(dir.join("out/gatewayclasses.yaml")).expect("a file");
        assert_eq!(mine, "mine");
    }

    #[test]
    fn lists_and_broken_input_are_recognized() {
        let path = Path::new("x.yaml");
        let mut objects = Vec::new();
        let list =
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: A, metadata: {name: a}}]}";
        parse(path, list, &mut objects).expect("a list");
        assert_eq!(objects.len(), 1);
        for broken in ["kind: [", "kind: A", "- 1", "{apiVersion: v1, kind: AList}"] {
            assert!(parse(path, broken, &mut Vec::new()).is_err(), "{broken}");
        }
    }
}
