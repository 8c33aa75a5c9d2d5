//! The daemon takes clients in, one user's at a time, and starts a server for them.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};

use super::{SERVER_PROGRAM, Script, packet, pipe};
use crate::store::replace;

/// A daemon that runs.
#[derive(Debug)]
struct Daemon {
    own: PathBuf,
    /// Whether one server takes the clients of all users.
    many: bool,
    now: Mutex<Now>,
    changed: Condvar,
}

/// How it is now.
#[derive(Debug)]
struct Now {
    settings: Settings,
    server: Option<Server>,
    clients: usize,
    commands: u32,
    quitting: bool,
}

#[derive(Debug, Clone)]
struct Settings {
    percentage: f64,
    memory: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Server {
    user: u32,
    child: Child,
    /// As they were when it was started: later ones are the next server's.
    settings: Settings,
}

/// Starts a daemon in the background, and ends when that listens.
pub(super) fn start(own: &Path, many: bool, script: &Script) -> io::Result<ExitCode> {
    let pipe = pipe();
    if script.holds_output {
        Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn()?;
    }
    if !pipe.is_dir() {
        writeln!(io::stdout(), "Cannot access CUDA_MPS_PIPE_DIRECTORY={}", pipe.display())?;
        return Ok(ExitCode::FAILURE);
    }
    let mut child = Command::new(own)
        .args(["--serve", if many { "many" } else { "one" }])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() == "listening" {
        return Ok(ExitCode::SUCCESS);
    }
    write!(io::stdout(), "{line}")?;
    Ok(ExitCode::FAILURE)
}

/// Is the daemon.
pub(super) fn serve(own: &Path, many: bool) -> io::Result<ExitCode> {
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let pipe = pipe();
    let lock = fs::OpenOptions::new().append(true).create(true).open(pipe.join("control_lock"))?;
    fs::set_permissions(pipe.join("control_lock"), fs::Permissions::from_mode(0o666))?;
    if lock.try_lock().is_err() {
        writeln!(io::stdout(), "An instance of this daemon is already running")?;
        return Ok(ExitCode::FAILURE);
    }
    log(&format!("Starting control daemon using socket {}", pipe.join("control").display()));
    log(&format!("CUDA_VISIBLE_DEVICES={:?} fds={}", env::var_os("CUDA_VISIBLE_DEVICES"), fds()));
    while Script::read(own)?.never_ready {
        thread::sleep(Duration::from_millis(10));
    }
    let control = pipe.join("control");
    let _of_one_that_died = fs::remove_file(&control);
    let listener = packet::listener(&control)?;
    fs::set_permissions(&control, fs::Permissions::from_mode(0o666))?;
    let own_pid = std::process::id().to_string();
    replace(&pipe.join("nvidia-cuda-mps-control.pid"), own_pid.as_bytes())?;
    let settings = Settings { percentage: 100.0, memory: BTreeMap::new() };
    let now = Now { settings, server: None, clients: 0, commands: 0, quitting: false };
    let daemon =
        Daemon { own: own.to_owned(), many, now: Mutex::new(now), changed: Condvar::new() };
    let daemon = Arc::new(daemon);
    writeln!(io::stdout(), "listening")?;
    loop {
        let socket = accept_with(&listener, SocketFlags::CLOEXEC)?;
        let daemon = Arc::clone(&daemon);
        thread::spawn(move || daemon.attend(&socket));
    }
}

/// Is a server: it holds the GPU, and what it shares with its clients.
pub(super) fn server() -> io::Result<ExitCode> {
    replace(&Path::new("/dev/shm").join(segment(std::process::id())), b"")?;
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn segment(server: u32) -> String {
    format!("cuda.shm.{server}")
}

/// What this process was started with, besides what it opened.
fn fds() -> String {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().filter_map(Result::ok);
    let mut all: Vec<(u32, String)> = open
        .filter_map(|fd| {
            let number = fd.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(fd.path()).ok()?.display().to_string()))
        })
        .filter(|(_, path)| !path.contains("control_lock") && !path.starts_with("/proc/"))
        .collect();
    all.sort();
    all.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(",")
}

fn log(line: &str) {
    let Some(folder) = env::var_os("CUDA_MPS_LOG_DIRECTORY") else { return };
    let path = PathBuf::from(folder).join("control.log");
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    let own = std::process::id();
    let _nowhere = file.and_then(|mut file| writeln!(file, "[2026-01-01 Control {own}] {line}"));
}

// === impl Daemon ===

impl Daemon {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one that connected, until it is gone.
    fn attend(&self, socket: &OwnedFd) {
        log("Accepting connection...");
        let Ok(user) = socket_peercred(socket).map(|peer| peer.uid.as_raw()) else { return };
        while let Ok(Some(said)) = packet::hear(socket) {
            while Script::read(&self.own).is_ok_and(|script| script.deaf) {
                thread::sleep(Duration::from_millis(10));
            }
            match said.strip_prefix("ui ") {
                Some(command) => {
                    let answer = self.obey(command, user);
                    if !answer.is_empty() {
                        log(answer.trim());
                    }
                    // An answer without a word is one too.
                    let _gone = packet::say(socket, &format!(" {answer}"));
                }
                None => self.take_in(socket, user),
            }
        }
    }

    /// Does what a command says; what it answers.
    fn obey(&self, command: &str, user: u32) -> String {
        log(&format!("Cmd:{command}"));
        let script = Script::read(&self.own).unwrap_or_default();
        let mut now = self.now();
        now.commands += 1;
        if script.dies_after.is_some_and(|after| now.commands > after) {
            log("Segmentation fault");
            std::process::exit(139);
        }
        if let Some(answer) = script.answer {
            return answer;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        let may = user == 0 || user == rustix::process::geteuid().as_raw();
        if !may && !command.starts_with("get_") {
            return format!("Insufficient privileges for UID {user}.\n");
        }
        if script.refuses.as_deref() == words.first().copied() && script.refuses.is_some() {
            log("Invalid value");
            return String::new();
        }
        let settings = &mut now.settings;
        match words.as_slice() {
            ["get_server_list"] => now
                .server
                .as_ref()
                .map_or(String::new(), |server| format!("{}\n", server.child.id())),
            ["get_default_active_thread_percentage"] => format!("{:.1}\n", settings.percentage),
            ["set_default_active_thread_percentage", value] => {
                match value.parse::<f64>() {
                    Ok(percentage) if percentage > 0.0 && percentage <= 100.0 => {
                        settings.percentage = percentage;
                    }
                    _ => log("Invalid percentage, expected between (0.0, 100.0]"),
                }
                format!("{:.1}\n", settings.percentage)
            }
            ["get_default_device_pinned_mem_limit", device] => match settings.memory.get(*device) {
                Some(limit) => format!("{limit}\n"),
                None => {
                    log("No default pinned memory limit set for the device!");
                    String::new()
                }
            },
            ["set_default_device_pinned_mem_limit", device, value] => {
                settings.memory.insert((*device).to_owned(), limit(value));
                String::new()
            }
            ["quit", ..] if script.ignores_quit => {
                drop(now);
                loop {
                    thread::sleep(Duration::from_secs(3600));
                }
            }
            ["quit", rest @ ..] => {
                let seconds = rest.get(1).and_then(|seconds| seconds.parse().ok());
                self.quit(now, seconds)
            }
            [first, ..] => format!("Unknown command {first:?}\n"),
            [] => String::new(),
        }
    }

    /// Ends, when its clients have, or after so many seconds.
    fn quit(&self, mut now: MutexGuard<'_, Now>, seconds: Option<u64>) -> ! {
        log("quit command issued");
        now.quitting = true;
        let patience = seconds.map_or(Duration::MAX, Duration::from_secs);
        let waited = self.changed.wait_timeout_while(now, patience, |now| now.clients > 0);
        let (mut now, _) = waited.unwrap_or_else(PoisonError::into_inner);
        end(&mut now.server);
        log("Exit with status 0");
        let _gone = fs::remove_file(pipe().join("nvidia-cuda-mps-control.pid"));
        std::process::exit(0)
    }

    /// Lets a client in, when the server is, or can be, its user's; until it is gone.
    fn take_in(&self, socket: &OwnedFd, user: u32) {
        // With all users as one, all are root.
        let user = if self.many { rustix::process::geteuid().as_raw() } else { user };
        let mut now = self.now();
        while !now.quitting && now.clients > 0 && now.user() != Some(user) {
            log(&format!(
                "NEW CLIENT from user {user}: Server is not ready, push client to pending list"
            ));
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        if now.quitting {
            return;
        }
        if now.user() != Some(user) {
            end(&mut now.server);
            now.server = serving(user, &now.settings);
        }
        let Some(server) = &now.server else { return };
        let memory: Vec<String> = server
            .settings
            .memory
            .iter()
            .map(|(device, limit)| format!("{device}={limit}"))
            .collect();
        let given = format!(
            "user={user} percentage={} memory={} shm={}",
            server.settings.percentage,
            memory.join(","),
            segment(server.child.id())
        );
        now.clients += 1;
        drop(now);
        log(&format!("NEW CLIENT from user {user}: Server already exists"));
        if packet::say(socket, &given).is_ok() {
            let _gone = packet::hear(socket);
        }
        self.now().clients -= 1;
        self.changed.notify_all();
    }
}

/// As the daemon writes it: `1G` for 1024M.
fn limit(value: &str) -> String {
    let whole = value.strip_suffix('M').and_then(|number| number.parse::<u64>().ok());
    whole.filter(|m| m % 1024 == 0).map_or_else(|| value.to_owned(), |m| format!("{}G", m / 1024))
}

/// Starts a server for the clients of a user, which is there once its segment is.
fn serving(user: u32, settings: &Settings) -> Option<Server> {
    log(&format!("Starting new server for user {user}"));
    let mut command = Command::new(SERVER_PROGRAM);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if user != rustix::process::geteuid().as_raw() {
        command.uid(user);
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            log(&format!("Failed to start server using uid {user}. {error}"));
            return None;
        }
    };
    let segment = Path::new("/dev/shm").join(segment(child.id()));
    for _ in 0..1000 {
        if segment.exists() {
            return Some(Server { user, child, settings: settings.clone() });
        }
        thread::sleep(Duration::from_millis(5));
    }
    log("NEW SERVER: not ready");
    None
}

fn end(server: &mut Option<Server>) {
    if let Some(mut server) = server.take() {
        let _gone = server.child.kill();
        let _reaped = server.child.wait();
        let _swept = fs::remove_file(Path::new("/dev/shm").join(segment(server.child.id())));
    }
}

// === impl Now ===

impl Now {
    fn user(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.user)
    }
}
