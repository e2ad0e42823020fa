use prost::Message as _;
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};

use super::*;

#[expect(clippy::unnecessary_wraps, reason = "all names are optional")]
fn name(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn service(of: &str) -> ServiceDescriptorProto {
    ServiceDescriptorProto {
        name: name(of),
        ..ServiceDescriptorProto::default()
    }
}

/// Imports are public.
fn file(of: &str, imports: &[&str]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: name(of),
        package: name(of),
        dependency: imports.iter().map(|it| (*it).to_owned()).collect(),
        public_dependency: (0..).zip(imports).map(|(i, _)| i).collect(),
        service: vec![service("S")],
        ..FileDescriptorProto::default()
    }
}

fn set(file: Vec<FileDescriptorProto>) -> Vec<u8> {
    FileDescriptorSet { file }.encode_to_vec()
}

fn check(set: &[u8], services: &[&str]) -> Result<(), DescriptorSetError> {
    Services::read(set)?.require(services.iter().copied())
}

fn why(set: &[u8]) -> String {
    check(set, &["a.S"]).unwrap_err().to_string()
}

#[test]
fn incomplete_sets_are_refused() {
    let good = set(vec![file("a", &[]), file("b", &["a"])]);
    assert_eq!(check(&good, &["a.S", "b.S"]), Ok(()));
    for absent in ["a.T", "a", ".a.S", ""] {
        let found = check(&good, &[absent]).unwrap_err();
        assert_eq!(found, DescriptorSetError::NoService(absent.to_owned()));
    }
    for (bytes, expected) in [
        (vec![], "does not define"),
        (b"\xff".to_vec(), "not a complete"),
        (b"\x0a\x01\xff".to_vec(), "not a complete"),
        (set(vec![file("a", &["b"])]), "imports \"b\", which is miss"),
        (set(vec![file("", &[])]), "no name"),
        (
            set(vec![file("b", &["a"]), file("a", &[])]),
            "before its import",
        ),
    ] {
        let found = why(&bytes);
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn cyclic_and_repeated_imports_are_refused() {
    for (files, expected) in [
        (vec![file("a", &["a"])], "imports itself"),
        (
            vec![file("a", &["b"]), file("b", &["a"])],
            "before its import",
        ),
        (
            vec![file("b", &[]), file("a", &["b", "b"])],
            "imports \"b\" twice",
        ),
        (vec![file("a", &[]), file("a", &[])], "lists the file"),
    ] {
        let found = why(&set(files));
        assert!(found.contains(expected), "{found}");
    }
    for marked in [-1, 0] {
        let mut of = file("a", &[]);
        of.public_dependency = vec![marked];
        assert!(why(&set(vec![of])).contains("marks an import"));
    }
}

#[test]
fn public_imports_of_all_files_are_checked_once() {
    let names: Vec<String> = (0..MAX_FILES).map(|i| format!("f{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let files = |count: usize| {
        let files = names.iter().enumerate().take(count);
        let files = files.map(|(i, name)| file(name, &names[i.saturating_sub(20)..i]));
        set(files.collect())
    };
    assert_eq!(check(&files(20), &["f0.S", "f19.S"]), Ok(()));
    let most = files(MAX_FILES);
    assert_eq!(check(&most, &["f255.S"]), Ok(()));
}

#[test]
fn undefined_and_ambiguous_names_are_refused() {
    let message = |of: &str| DescriptorProto {
        name: name(of),
        ..DescriptorProto::default()
    };
    let with = |service: ServiceDescriptorProto, messages: Vec<DescriptorProto>| {
        let mut of = file("a", &[]);
        of.service = vec![service];
        of.message_type = messages;
        set(vec![of])
    };
    let method = |input: &str| ServiceDescriptorProto {
        method: vec![MethodDescriptorProto {
            name: name("Get"),
            input_type: name(input),
            output_type: name(".a.M"),
            ..MethodDescriptorProto::default()
        }],
        ..service("S")
    };
    let field = |of: &str| DescriptorProto {
        field: vec![FieldDescriptorProto {
            type_name: name(of),
            ..FieldDescriptorProto::default()
        }],
        nested_type: vec![message("N")],
        ..message("M")
    };
    let good = with(method(".a.M.N"), vec![field(".a.M.N")]);
    assert_eq!(check(&good, &["a.S"]), Ok(()));
    for (bytes, expected) in [
        (with(ServiceDescriptorProto::default(), vec![]), "not a nam"),
        (with(service("S.T"), vec![]), "not a name"),
        (with(service("S"), vec![message("S")]), "defined twice"),
        (with(method(".a.N"), vec![message("M")]), "not defined"),
        (with(method(""), vec![message("M")]), "not defined"),
        (with(method(".a.S"), vec![message("M")]), "not defined"),
        (with(service("S"), vec![field(".a.N")]), "not defined"),
    ] {
        let found = why(&bytes);
        assert!(found.contains(expected), "{found}");
    }
    let mut of = file("a", &[]);
    of.package = name("a..b");
    assert!(why(&set(vec![of])).contains("not a package"));
}

#[test]
fn oversize_sets_are_refused() {
    let long = vec![0; GrpcJsonTranscoder::MAX_BYTES + 1];
    assert_eq!(why(&long), "has 262145 bytes; at most 262144 are allowed");
    let many = vec![FileDescriptorProto::default(); MAX_FILES + 1];
    assert!(why(&set(many)).contains("257 files"));
    // Short names below a long one.
    let inner = (0..1000).map(|i| service(&format!("S{i}")));
    let mut of = file("a", &[]);
    of.package = name(&"p".repeat(100_000));
    of.service = inner.collect();
    assert_eq!(
        check(&set(vec![of]), &[]),
        Err(DescriptorSetError::TooManyNames)
    );
    // Errors quote only the beginning.
    let found = why(&set(vec![file("a", &[&"p".repeat(100_000)])]));
    assert!(found.len() < 400, "{}", found.len());
}

#[test]
fn deep_nesting_is_refused() {
    let mut bytes = Vec::new();
    for _ in 0..1000 {
        let mut outer = Vec::new();
        wire::append(3, &bytes, &mut outer);
        bytes = outer;
    }
    let mut types = Vec::new();
    wire::append(4, &bytes, &mut types);
    let mut set = Vec::new();
    wire::append(FILE, &types, &mut set);
    // The decoder's message lists the levels.
    assert!(
        why(&set).contains("Type.types: Type.types"),
        "{}",
        why(&set)
    );
}
