//! Configuration files for the programs that run on a node.

use std::fs;
use std::path::Path;

use crate::confined;

pub(crate) const PAUSE: &str = "localhost/pause:test";
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSettings<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: std::net::Ipv4Addr,
    pub(crate) pods: &'a str,
}

/// The node sees `directory` as `/var/lib`.
pub(crate) fn write(directory: &Path, settings: NodeSettings<'_>) {
    let files = [
        ("cni/10-bridge.conflist", cni(settings.pods)),
        ("containerd.toml", CONTAINERD.replace("PAUSE", PAUSE)),
        ("kubelet.yaml", kubelet(settings)),
        ("proxy.yaml", proxy(settings.name)),
    ];
    for (name, text) in files {
        let path = directory.join("node").join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, text).expect("a file on the node");
    }
}

/// For containerd 1.6 and 1.7. Process limits are not raised, because some test environments forbid
/// that.
const CONTAINERD: &str = r#"
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "PAUSE"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/var/lib/node/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
"#;

fn cni(pods: &str) -> String {
    serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/var/lib/cni",
            },
        }],
    })
    .to_string()
}

/// By default, kubelet would change machine-wide sysctls; see `node::INIT`.
fn kubelet(settings: NodeSettings<'_>) -> String {
    let NodeSettings {
        name,
        address,
        pods: _,
    } = settings;
    serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": confined::group_of(name),
        "failCgroupV1": false,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "podLogsDir": "/var/lib/pods",
        "volumePluginDir": "/var/lib/kubelet-plugins",
        "resolvConf": "",
        "clusterDNS": ["10.96.0.10"],
        "protectKernelDefaults": true,
        // By default, kubelet updates mounted ConfigMaps only once per minute.
        "syncFrequency": "10s",
        // Disables image garbage collection, because images cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
    })
    .to_string()
}

/// Timeouts of 0 keep kube-proxy from changing sysctls.
fn proxy(name: &str) -> String {
    serde_json::json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": "10.88.0.0/16",
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": "/var/lib/node/kubeconfig"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
    .to_string()
}
