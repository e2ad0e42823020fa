//! The measured host: the real agent and Envoy, in temporary directories.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sesame_envoy::Admin;
use sesame_render::layout::XdsLayout;
use sesame_tests::processes::{below, cpu_seconds, main_thread_seconds, memory_mib};

use super::client::Client;
use super::manifests::{Shape, WrittenManifests};

pub(crate) struct Host {
    root: tempfile::TempDir,
    manifests: WrittenManifests,
    port: u16,
    agent: Option<Child>,
    envoy_pid: Option<i32>,
    admin: Option<PathBuf>,
}

impl Host {
    pub(crate) fn new(shape: Shape) -> anyhow::Result<Self> {
        // Use a tmpfs, because `/run` is one on a real host.
        let base = if Path::new("/dev/shm").is_dir() {
            "/dev/shm"
        } else {
            "/tmp"
        };
        let root = tempfile::Builder::new().prefix("sb").tempdir_in(base)?;
        let manifests = root.path().join("m");
        std::fs::create_dir(&manifests)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self {
            manifests: WrittenManifests::new(&manifests, shape),
            root,
            port,
            agent: None,
            envoy_pid: None,
            admin: None,
        })
    }

    pub(crate) fn manifests(&self) -> &WrittenManifests {
        &self.manifests
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn log(&self) -> PathBuf {
        self.root.path().join("agent.log")
    }

    fn runtime(&self) -> PathBuf {
        self.root.path().join("r")
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        let binary = agent_program()?;
        let log = std::fs::File::create(self.log())?;
        let child = Command::new(&binary)
            .args(["run", "--allow-local-endpoints", "--address", "127.0.0.1"])
            .arg("--port-map")
            .arg(format!("80:{}", self.port))
            .arg("--manifests")
            .arg(self.manifests.dir())
            .arg("--state-dir")
            .arg(self.root.path().join("s"))
            .arg("--runtime-dir")
            .arg(self.runtime())
            .args(flags)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        self.agent = Some(child);
        Ok(())
    }

    fn report(&self) -> anyhow::Result<Value> {
        let body = ask(&self.runtime().join("agent.sock"), "/gateways")?;
        Ok(serde_json::from_slice(&body)?)
    }

    pub(crate) fn wait_serving(&mut self, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        let mut last = String::new();
        while Instant::now() < deadline {
            if let Some(status) = self
                .agent
                .as_mut()
                .map(Child::try_wait)
                .transpose()?
                .flatten()
            {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                bail!("the agent ended with {status}: {}", log.trim_end());
            }
            match self.report() {
                Ok(report) => {
                    let gateway = measured(&report);
                    if gateway["state"] == "Serving" && gateway["wanted"] == gateway["applied"] {
                        self.envoy_pid = gateway["envoy"]["pid"]
                            .as_i64()
                            .and_then(|pid| pid.try_into().ok());
                        self.admin = gateway["envoy"]["admin"].as_str().map(PathBuf::from);
                        return Ok(());
                    }
                    last = report.to_string();
                }
                Err(error) => last = format!("{error:#}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("the agent did not serve within {within:?}: {last}")
    }

    fn gateway_dir(&self) -> anyhow::Result<PathBuf> {
        let report = self.report()?;
        let admin = measured(&report)["envoy"]["admin"]
            .as_str()
            .context("no admin socket")?;
        Ok(Path::new(admin)
            .parent()
            .context("no directory")?
            .to_owned())
    }

    fn layout(&self) -> anyhow::Result<XdsLayout> {
        Ok(XdsLayout::new(self.gateway_dir()?.join("xds")))
    }

    pub(crate) fn with_endpoint_files(&self, sets: &[String]) -> anyhow::Result<Vec<bool>> {
        let layout = self.layout()?;
        Ok(sets.iter().map(|set| layout.eds(set).exists()).collect())
    }

    pub(crate) fn clusters_file(&self) -> anyhow::Result<PathBuf> {
        Ok(self.layout()?.cds())
    }

    pub(crate) fn route_table_file(&self) -> anyhow::Result<PathBuf> {
        Ok(self.layout()?.rds("http/80"))
    }

    /// Writes to the watched directories' file system, so that the file can be renamed into place.
    pub(crate) fn stage(&self, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let aside = self.root.path().join("floor.pb");
        std::fs::write(&aside, bytes)?;
        Ok(aside)
    }

    pub(crate) fn envoy_series(&self) -> anyhow::Result<usize> {
        let admin = Admin::new(self.gateway_dir()?.join("admin.sock"));
        let runtime = tokio::runtime::Runtime::new()?;
        Ok(series(&runtime.block_on(admin.get("/stats/prometheus"))?))
    }

    pub(crate) fn agent_series(&self) -> anyhow::Result<usize> {
        Ok(series(&ask(
            &self.runtime().join("agent.sock"),
            "/metrics",
        )?))
    }

    fn agent_pid(&self) -> anyhow::Result<u32> {
        Ok(self.agent.as_ref().context("no agent")?.id())
    }

    pub(crate) fn agent_memory(&self) -> anyhow::Result<(f64, f64)> {
        Ok(memory_mib(self.agent_pid()?))
    }

    pub(crate) fn envoy_memory(&self) -> anyhow::Result<(f64, f64)> {
        Ok(memory_mib(self.envoy_id()?))
    }

    pub(crate) fn envoy_id(&self) -> anyhow::Result<u32> {
        Ok(u32::try_from(self.envoy_pid.context("no Envoy")?)?)
    }

    pub(crate) fn config_dump(&self, query: &str) -> anyhow::Result<Value> {
        let admin = Admin::new(self.admin.as_ref().context("the agent never served")?);
        let runtime = tokio::runtime::Runtime::new()?;
        let dump = runtime.block_on(admin.get(&format!("/config_dump?{query}")))?;
        Ok(serde_json::from_slice(&dump)?)
    }

    pub(crate) fn envoy_cpu_seconds(&self) -> anyhow::Result<f64> {
        Ok(cpu_seconds(self.envoy_id()?))
    }

    pub(crate) fn envoy_main_seconds(&self) -> anyhow::Result<f64> {
        Ok(main_thread_seconds(self.envoy_id()?))
    }

    pub(crate) fn agent_cpu_seconds(&self) -> anyhow::Result<f64> {
        Ok(cpu_seconds(self.agent_pid()?))
    }

    pub(crate) fn agent_cpu_percent(&self, over: Duration) -> anyhow::Result<f64> {
        let pid = self.agent_pid()?;
        std::thread::sleep(Duration::from_secs(1));
        let before = cpu_seconds(pid);
        std::thread::sleep(over);
        Ok((cpu_seconds(pid) - before) / over.as_secs_f64() * 100.0)
    }

    pub(crate) fn kill_agent(&mut self) -> anyhow::Result<()> {
        if let Some(mut agent) = self.agent.take() {
            agent.kill()?;
            agent.wait()?;
        }
        Ok(())
    }

    /// Returns the program of the serving Envoy.
    pub(crate) fn envoy_program(&self) -> anyhow::Result<PathBuf> {
        let pid = self.envoy_pid.context("no Envoy")?;
        Ok(std::fs::read_link(format!("/proc/{pid}/exe"))?)
    }

    pub(crate) fn replace_envoy(&self, strategy: &str) -> anyhow::Result<()> {
        let replaced = Command::new(agent_program()?)
            .args(["restart", "--strategy", strategy, "--runtime-dir"])
            .arg(self.runtime())
            .arg("--gateway")
            .arg(format!("bench/{}", WrittenManifests::gateway()))
            .output()?;
        let stderr = String::from_utf8_lossy(&replaced.stderr);
        ensure!(replaced.status.success(), "{strategy}: {stderr}");
        Ok(())
    }

    pub(crate) fn wait_alone(&mut self, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        loop {
            let processes = below(&self.runtime()).into_iter();
            let envoys = processes.filter(|process| process.is("envoy"));
            if envoys.count() <= self.manifests.gateways() {
                return self.wait_serving(within);
            }
            ensure!(Instant::now() < deadline, "a replaced Envoy did not exit");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn kill_envoy(&mut self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.envoy_pid.take().context("no Envoy")?);
        Ok(kill(pid, Signal::SIGKILL)?)
    }

    /// Waits until Envoy has the cluster or, if `there` is false, no longer has it.
    pub(crate) fn wait_cluster(
        &self,
        name: &str,
        there: bool,
        within: Duration,
    ) -> anyhow::Result<()> {
        let admin = self.admin.as_ref().context("the agent never served")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let deadline = Instant::now() + within;
        let filter = format!("^{name}$");
        runtime.block_on(async {
            let admin = Admin::new(admin);
            while Instant::now() < deadline {
                if admin.endpoints(&filter).await?.is_empty() != there {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            bail!("{name} did not reach the expected state within {within:?}")
        })
    }

    pub(crate) fn kill_all(&mut self) -> anyhow::Result<()> {
        self.kill_agent()?;
        self.envoy_pid = None;
        let processes = below(&self.runtime()).into_iter();
        for envoy in processes.filter(|process| process.is("envoy")) {
            kill_and_wait(envoy.pid)?;
        }
        Ok(())
    }

    pub(crate) fn forget_runtime(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_dir_all(self.runtime())?)
    }

    /// Returns the time until the first response.
    pub(crate) fn cold_start_envoy_alone(&mut self, hostname: &str) -> anyhow::Result<f64> {
        let pid = self.envoy_pid.take().context("no Envoy")?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline"))?;
        let arguments: Vec<String> = command
            .split(|byte| *byte == 0)
            .filter(|argument| !argument.is_empty())
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        let (binary, arguments) = arguments.split_first().context("no command line")?;
        kill_and_wait(pid)?;
        let started = Instant::now();
        let mut envoy = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let served =
            Client::new(self.address()).wait_for(hostname, Duration::from_secs(120), |answer| {
                answer.status == 200
            });
        let took = started.elapsed();
        envoy.kill()?;
        envoy.wait()?;
        served?;
        Ok(took.as_secs_f64() * 1000.0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = self.kill_all() {
            eprintln!("left over: {error:#}");
        }
    }
}

pub(crate) fn agent_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("no directory")?.join("sesame-agent"))
}

fn measured(report: &Value) -> &Value {
    let name = format!("bench/{}", WrittenManifests::gateway());
    let gateways = report["gateways"].as_array();
    let mut gateways = gateways.into_iter().flatten();
    gateways
        .find(|it| it["gateway"] == name.as_str())
        .unwrap_or(&Value::Null)
}

fn kill_and_wait(pid: i32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid);
    if kill(pid, Signal::SIGKILL).is_ok() {
        let deadline = Instant::now() + Duration::from_secs(60);
        // The kernel releases all inotify instances only when every thread has exited.
        while std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
            || std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z"))
        {
            if Instant::now() > deadline {
                bail!("process {pid} did not exit");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

fn series(page: &[u8]) -> usize {
    let page = String::from_utf8_lossy(page);
    let lines = page.lines();
    let is_series = |line: &&str| !line.is_empty() && !line.starts_with('#');
    lines.filter(is_series).count()
}

fn ask(socket: &Path, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: local\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("no answer")?;
    Ok(answer.split_off(end + 4))
}
