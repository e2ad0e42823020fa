//! Queries the configuration versions that Envoy has accepted.
//!
//! These queries occupy Envoy's main thread, which must also load the next change. The Prometheus
//! format is cheaper, but only plain text has complete names. With ten thousand clusters and
//! virtual hosts, a Prometheus query takes 3 ms, and plain text takes 17 ms longer per statistics
//! type. Never mistake one subscription's version for another's.

use std::collections::HashMap;

use super::{Admin, AdminError, Sample, encode_query, text};
use sesame_render::xds::VersionTexts;

impl Admin {
    /// Returns the accepted versions of clusters, listeners and route tables. Omits names with
    /// characters other than letters, digits, `_`, `-`, `.` and `/`, because Envoy does not export
    /// them as labels.
    pub async fn versions_of_lists_and_route_tables(&self) -> Result<VersionTexts, AdminError> {
        let filter =
            r"^(cluster_manager\.cds|listener_manager\.lds|http\..*\.rds\..*)\.version_text$";
        let path = format!(
            "/stats/prometheus?text_readouts&filter={}",
            encode_query(filter)
        );
        let body = self.get(&path).await?;
        let samples = text(&path, &body)?.lines().filter_map(Sample::read);
        let by_scope = samples.filter_map(|sample| {
            let scope = match sample.name {
                "envoy_cluster_manager_cds_version_text" => "cluster_manager.cds".to_owned(),
                "envoy_listener_manager_lds_version_text" => "listener_manager.lds".to_owned(),
                "envoy_http_rds_version_text" => {
                    let prefix = sample.label("envoy_http_conn_manager_prefix")?;
                    let table = sample.label("envoy_rds_route_config")?;
                    format!("http.{prefix}.rds.{table}")
                }
                _ => return None,
            };
            Some((scope, sample.label("text_value")?.to_owned()))
        });
        Ok(VersionTexts {
            by_scope: by_scope.collect(),
        })
    }

    /// Returns all accepted versions. Takes 13 ms with 5,000 clusters that each have an endpoint
    /// file.
    pub async fn version_texts(&self) -> Result<VersionTexts, AdminError> {
        self.versions("version_text").await
    }

    /// Like [`Self::version_texts`], but omits endpoints, which takes 25% less time.
    pub async fn version_texts_without_endpoints(&self) -> Result<VersionTexts, AdminError> {
        self.versions(r"^(cluster_manager|listener_manager|http|sds)\..*version_text")
            .await
    }

    async fn versions(&self, filter: &str) -> Result<VersionTexts, AdminError> {
        let path = format!("/stats?type=TextReadouts&filter={}", encode_query(filter));
        let path = path.as_str();
        let body = self.get(path).await?;
        let mut by_scope = HashMap::new();
        for line in text(path, &body)?.lines() {
            // Example: `cluster_manager.cds.version_text: "0123"`. The name may contain spaces.
            let scope_and_version = line
                .strip_suffix('"')
                .and_then(|line| line.rsplit_once(".version_text: \""));
            if let Some((scope, version)) = scope_and_version {
                by_scope.insert(scope.to_owned(), version.to_owned());
            }
        }
        Ok(VersionTexts { by_scope })
    }

    /// Returns true while a cluster waits for endpoints, secrets or its first health check, or a
    /// listener for route tables or secrets.
    pub async fn warming(&self) -> Result<bool, AdminError> {
        let gauges = [
            "cluster_manager.warming_clusters",
            "listener_manager.total_listeners_warming",
        ];
        Ok(self.sum(&gauges).await? > 0)
    }

    /// The counters and gauges must not have labels.
    async fn sum(&self, names: &[&str]) -> Result<u64, AdminError> {
        let found = self.prometheus(&format!("^({})$", names.join("|"))).await?;
        let samples = found.lines().filter_map(Sample::read);
        Ok(samples.map(|sample| sample.count()).sum())
    }
}
