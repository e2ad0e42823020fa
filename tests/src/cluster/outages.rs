//! Outages of the API server and of etcd.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::TestCluster;

impl TestCluster {
    /// Sends SIGKILL to the API server. etcd keeps running.
    pub fn stop_apiserver(&mut self) {
        self.servers.stop_apiserver();
    }

    /// Sends SIGSTOP to the API server. The kernel still accepts connections.
    pub fn freeze_apiserver(&self) {
        self.servers.signal_apiserver(Signal::SIGSTOP);
    }

    /// Sends SIGCONT to the API server.
    pub fn thaw_apiserver(&self) {
        self.servers.signal_apiserver(Signal::SIGCONT);
    }

    /// Sends SIGKILL to etcd. The API server keeps running, but fails most requests.
    pub fn stop_etcd(&mut self) {
        self.servers.stop_etcd();
    }

    /// Sends SIGSTOP to etcd.
    pub fn freeze_etcd(&self) {
        self.servers.signal_etcd(Signal::SIGSTOP);
    }

    /// Sends SIGCONT to etcd.
    pub fn thaw_etcd(&self) {
        self.servers.signal_etcd(Signal::SIGCONT);
    }

    /// Starts the API server without waiting. See [`Self::is_ready`].
    pub fn begin_apiserver(&mut self) {
        self.servers.start_apiserver();
    }

    /// Starts etcd with the same address and data, without waiting.
    pub fn begin_etcd(&mut self) {
        self.servers.start_etcd();
    }

    /// Restarts the servers that have exited by themselves, like a kubelet. Returns their names.
    pub fn revive(&mut self) -> Vec<&'static str> {
        let exited = self.servers.exited().into_iter();
        let exited: Vec<&str> = exited.map(|(name, _)| name).collect();
        for name in &exited {
            match *name {
                "etcd" => self.servers.start_etcd(),
                _ => self.servers.start_apiserver(),
            }
        }
        exited
    }

    /// Returns true if the API server reports within `patience` that it and etcd are ready.
    pub async fn is_ready(&self, patience: Duration) -> bool {
        let ready = tokio::time::timeout(patience, self.admin.get_text("/readyz"));
        matches!(ready.await, Ok(Ok(_)))
    }
}
