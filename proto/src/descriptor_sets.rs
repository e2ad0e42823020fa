//! Checks descriptor sets, which define gRPC services. Envoy rejects sets that are invalid.
//!
//! Sets are hostile input. They are not linked, because libraries for this recurse along imports.
//! Envoy finds all other errors when it validates its configuration.

use std::collections::{BTreeSet, HashMap, HashSet};

use prost::Message as _;

use self::parts::{Enum, File, Method, Service, Type};
use crate::schema::GrpcJsonTranscoder;
use crate::wire;

/// Maximum number of characters of quoted names and messages.
const MAX_MESSAGE: usize = 200;
/// Maximum number of files in a set.
const MAX_FILES: usize = 256;
/// Maximum total length of all full names, which repeat the names around them.
const MAX_NAMES: usize = 4 * 1024 * 1024;
/// Number of the only field of a `FileDescriptorSet`.
const FILE: u32 = 1;

/// Why a descriptor set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorSetError {
    /// More than [`GrpcJsonTranscoder::MAX_BYTES`].
    #[error("has {0} bytes; at most {max} are allowed", max = GrpcJsonTranscoder::MAX_BYTES)]
    TooLong(usize),
    /// More than the maximum number of files.
    #[error("has {0} files; at most {MAX_FILES} are allowed")]
    TooManyFiles(usize),
    /// Nested names add up to too much.
    #[error("has full names of more than {MAX_NAMES} bytes in total; use fewer or shorter names")]
    TooManyNames,
    /// Not a descriptor set, or imports are missing.
    #[error(
        "is not a complete FileDescriptorSet: {0}; create it with protoc --include_imports \
         --descriptor_set_out"
    )]
    Malformed(String),
    /// Envoy reads files in order.
    #[error("lists the file {file:?} before its import {import:?}")]
    Unsorted {
        /// Name of the file.
        file: String,
        /// Name of the imported file.
        import: String,
    },
    /// A service that the set lacks.
    #[error("does not define the service {0:?}")]
    NoService(String),
}

/// Full names of the services that a valid set defines.
#[derive(Debug, PartialEq, Eq)]
pub struct Services(BTreeSet<String>);

impl Services {
    /// Checks a set.
    pub fn read(set: &[u8]) -> Result<Self, DescriptorSetError> {
        if set.len() > GrpcJsonTranscoder::MAX_BYTES {
            return Err(DescriptorSetError::TooLong(set.len()));
        }
        let files = wire::contents(set, FILE).ok_or_else(|| malformed("it cannot be decoded"))?;
        // Count before decoding, which multiplies the size.
        if files.len() > MAX_FILES {
            return Err(DescriptorSetError::TooManyFiles(files.len()));
        }
        let files = files.into_iter().map(File::decode);
        let files: Vec<File> = files
            .collect::<Result<_, _>>()
            .map_err(|why| malformed(&why.to_string()))?;
        check_imports(&files)?;
        let mut symbols = Symbols::default();
        for file in &files {
            symbols.add_file(file)?;
        }
        for file in &files {
            symbols.check_types(&file.messages)?;
            for method in file.services.iter().flat_map(|it| &it.methods) {
                let Method { input, output, .. } = method;
                symbols.check_reference(input, &[Symbol::Message])?;
                symbols.check_reference(output, &[Symbol::Message])?;
            }
        }
        let services = symbols.known.into_iter();
        let services = services.filter(|(_, symbol)| *symbol == Symbol::Service);
        Ok(Self(services.map(|(name, _)| name).collect()))
    }

    /// Checks that the set defines `services`.
    pub fn require<'s>(
        &self,
        services: impl IntoIterator<Item = &'s str>,
    ) -> Result<(), DescriptorSetError> {
        let mut services = services.into_iter();
        match services.find(|it| !self.0.contains(*it)) {
            Some(absent) => Err(DescriptorSetError::NoService(short(absent))),
            None => Ok(()),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}

fn malformed(why: &str) -> DescriptorSetError {
    DescriptorSetError::Malformed(short(why))
}

/// Imports must be earlier files, which also rules out cycles.
fn check_imports(files: &[File]) -> Result<(), DescriptorSetError> {
    let mut places = HashMap::new();
    for (place, File { name, .. }) in files.iter().enumerate() {
        if name.is_empty() {
            return Err(malformed("a file has no name"));
        }
        if places.insert(name.as_str(), place).is_some() {
            return Err(malformed(&format!("it lists the file {name:?} twice")));
        }
    }
    for (place, file) in files.iter().enumerate() {
        let File { name, imports, .. } = file;
        let mut seen = HashSet::new();
        for import in imports {
            let malformed = |why| Err(malformed(&format!("{:?} {why}", short(name))));
            match places.get(import.as_str()) {
                None => return malformed(format!("imports {import:?}, which is missing")),
                Some(at) if *at == place => return malformed("imports itself".to_owned()),
                Some(at) if *at > place => {
                    return Err(DescriptorSetError::Unsorted {
                        file: short(name),
                        import: short(import),
                    });
                }
                Some(_) if seen.insert(import) => {}
                Some(_) => return malformed(format!("imports {import:?} twice")),
            }
        }
        let mut marked = file.public_imports.iter().chain(&file.weak_imports);
        if marked.any(|i| usize::try_from(*i).map_or(true, |i| i >= imports.len())) {
            return Err(malformed(&format!(
                "{:?} marks an import that it lacks",
                short(name)
            )));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Message,
    Enum,
    Service,
    Method,
}

#[derive(Default)]
struct Symbols {
    known: HashMap<String, Symbol>,
    /// Total length of the names.
    length: usize,
}

impl Symbols {
    fn add_file(&mut self, file: &File) -> Result<(), DescriptorSetError> {
        let package = file.package.as_str();
        if !package.is_empty() && !package.split('.').all(is_identifier) {
            return Err(malformed(&format!("{package:?} is not a package")));
        }
        self.add_types(package, &file.messages)?;
        self.add_enums(package, &file.enums)?;
        for Service { name, methods } in &file.services {
            let service = self.add(package, name, Symbol::Service)?;
            for method in methods {
                self.add(&service, &method.name, Symbol::Method)?;
            }
        }
        Ok(())
    }

    /// The decoder limits the depth.
    fn add_types(&mut self, scope: &str, types: &[Type]) -> Result<(), DescriptorSetError> {
        for of in types {
            let name = self.add(scope, &of.name, Symbol::Message)?;
            self.add_types(&name, &of.types)?;
            self.add_enums(&name, &of.enums)?;
        }
        Ok(())
    }

    fn add_enums(&mut self, scope: &str, enums: &[Enum]) -> Result<(), DescriptorSetError> {
        for Enum { name } in enums {
            self.add(scope, name, Symbol::Enum)?;
        }
        Ok(())
    }

    /// Returns the full name.
    fn add(
        &mut self,
        scope: &str,
        name: &str,
        symbol: Symbol,
    ) -> Result<String, DescriptorSetError> {
        if !is_identifier(name) {
            return Err(malformed(&format!("{name:?} is not a name")));
        }
        self.length += scope.len() + name.len() + 1;
        if self.length > MAX_NAMES {
            return Err(DescriptorSetError::TooManyNames);
        }
        let full = match scope {
            "" => name.to_owned(),
            _ => format!("{scope}.{name}"),
        };
        if self.known.insert(full.clone(), symbol).is_some() {
            return Err(malformed(&format!("{full:?} is defined twice")));
        }
        Ok(full)
    }

    fn check_types(&self, types: &[Type]) -> Result<(), DescriptorSetError> {
        for of in types {
            let names = of.fields.iter().map(|it| &it.type_name);
            for name in names.filter(|it| !it.is_empty()) {
                self.check_reference(name, &[Symbol::Message, Symbol::Enum])?;
            }
            self.check_types(&of.types)?;
        }
        Ok(())
    }

    fn check_reference(&self, name: &str, allowed: &[Symbol]) -> Result<(), DescriptorSetError> {
        let known = match name.strip_prefix('.') {
            Some(full) => self.known.get(full).is_some_and(|it| allowed.contains(it)),
            // Envoy resolves relative names, which protoc never writes.
            None => !name.is_empty(),
        };
        if known {
            return Ok(());
        }
        Err(malformed(&format!("the type {name:?} is not defined")))
    }
}

fn is_identifier(name: &str) -> bool {
    let allowed = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    !name.is_empty() && name.bytes().all(allowed)
}

/// The checked parts of `google/protobuf/descriptor.proto`. Other fields would take more memory.
mod parts {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct File {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) package: String,
        #[prost(string, repeated, tag = "3")]
        pub(super) imports: Vec<String>,
        #[prost(message, repeated, tag = "4")]
        pub(super) messages: Vec<Type>,
        #[prost(message, repeated, tag = "5")]
        pub(super) enums: Vec<Enum>,
        #[prost(message, repeated, tag = "6")]
        pub(super) services: Vec<Service>,
        #[prost(int32, repeated, tag = "10")]
        pub(super) public_imports: Vec<i32>,
        #[prost(int32, repeated, tag = "11")]
        pub(super) weak_imports: Vec<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Type {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "2")]
        pub(super) fields: Vec<Field>,
        #[prost(message, repeated, tag = "3")]
        pub(super) types: Vec<Type>,
        #[prost(message, repeated, tag = "4")]
        pub(super) enums: Vec<Enum>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Field {
        #[prost(string, tag = "6")]
        pub(super) type_name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Enum {
        #[prost(string, tag = "1")]
        pub(super) name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Service {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "2")]
        pub(super) methods: Vec<Method>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Method {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) input: String,
        #[prost(string, tag = "3")]
        pub(super) output: String,
    }
}

#[cfg(test)]
mod tests;
