//! Realistic inputs from the golden cases.

use std::sync::LazyLock;

use sesame_resolver::{Options, ResolvedGateway, resolve};
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::Manifests;
use sesame_tests::golden;

use super::campaign::scratch;

pub(crate) fn manifests() -> Vec<Vec<u8>> {
    let cases = golden::cases().expect("golden cases");
    let inputs = cases
        .iter()
        .map(|case| case.input().expect("the case's input"));
    inputs.map(String::into_bytes).collect()
}

/// Uses only a few cases unless `FUZZ_SECONDS` is set, because every test resolves them again.
pub(crate) fn gateways() -> &'static [ResolvedGateway] {
    static GATEWAYS: LazyLock<Vec<ResolvedGateway>> = LazyLock::new(|| {
        let dir = scratch();
        let file = dir.path().join("all.yaml");
        let mut gateways = Vec::new();
        let long = std::env::var_os("FUZZ_SECONDS").is_some();
        for text in manifests().into_iter().step_by(if long { 1 } else { 5 }) {
            std::fs::write(&file, text).expect("write");
            let mut manifests = Manifests::new(dir.path(), LastGood::none());
            manifests.scan();
            gateways.extend(resolve(manifests.world(), &Options::default()).gateways);
        }
        gateways
    });
    &GATEWAYS
}

pub(crate) fn two() -> [&'static ResolvedGateway; 2] {
    let gateways = gateways();
    let with_keys = gateways.iter().find(|gateway| !gateway.keys.is_empty());
    [with_keys.expect("a golden case with keys"), &gateways[0]]
}
