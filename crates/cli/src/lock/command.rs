//! Runs a command in a process group of its own, while a lease lasts.

use super::kind::HeldLease;
use super::signals::{Signals, exit_code};
use super::terminal::Terminal;
use crate::failure::{CANNOT_RUN, Failure, NO_COMMAND};
use crate::once::tee::Tee;
use baton_client::LeaseLost;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_current_process_group, kill_process_group,
    test_kill_process_group, waitpid,
};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How often to look whether the last process of a group is gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long that may take after SIGKILL: only a process stuck in the kernel takes longer.
const KILLED_MAX: Duration = Duration::from_secs(2);

/// How it went.
pub enum Ended {
    /// The command came to its end: with this exit code, as shells put it.
    Itself { code: u8, by_signal: bool },
    /// The lease was lost, and the whole group was stopped; `killed` if asking didn't help.
    Lost { lost: LeaseLost, killed: bool },
}

/// The command's process group. Its id stays taken as long as a member, or its unreaped leader, exists.
struct Group {
    id: Pid,
    terminal: Option<Terminal>,
    /// How the leader ended.
    leader: Option<WaitStatus>,
}

/// Runs the command to its end, or to the lease's. What it prints goes through the tee, if there is one.
pub async fn run(
    command: &[OsString],
    environment: &[(&str, String)],
    lease: &HeldLease,
    grace: Duration,
    signals: &mut Signals,
    tee: Option<&mut Tee>,
) -> Result<Ended, Failure> {
    run_at(Ground::Fore, command, environment, lease, grace, signals, tee).await
}

/// The same for one of several: none of them has the terminal, nor anything to read.
pub async fn run_in_background(
    command: &[OsString],
    environment: &[(&str, String)],
    lease: &HeldLease,
    grace: Duration,
    signals: &mut Signals,
    tee: &mut Tee,
) -> Result<Ended, Failure> {
    run_at(Ground::Back, command, environment, lease, grace, signals, Some(tee)).await
}

/// Whether a command has the terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    Fore,
    Back,
}

async fn run_at(
    ground: Ground,
    command: &[OsString],
    environment: &[(&str, String)],
    lease: &HeldLease,
    grace: Duration,
    signals: &mut Signals,
    tee: Option<&mut Tee>,
) -> Result<Ended, Failure> {
    // Listening begins before there is a child whose end could be missed.
    let mut changes = unix::signal(SignalKind::child())?;
    let mut group = Group::start(ground, command, environment, tee)?;
    let lost = loop {
        if let Some(status) = group.look(lease)? {
            return Ok(ended(status));
        }
        tokio::select! {
            biased;
            lost = lease.lost() => break lost,
            _ = changes.recv() => {}
            signal = signals.next() => group.send(signal),
        }
    };
    let killed = group.stop(grace, signals).await?;
    Ok(Ended::Lost { lost, killed })
}

impl Group {
    fn start(
        ground: Ground,
        command: &[OsString],
        environment: &[(&str, String)],
        tee: Option<&mut Tee>,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::new(64, "there is no command to run", "put it after --"));
        };
        let mut start = std::process::Command::new(program);
        start.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
        if let Some(tee) = &tee {
            start.stdout(Stdio::piped());
            if tee.takes_errors() {
                start.stderr(Stdio::piped());
            }
        }
        if ground == Ground::Back {
            start.stdin(Stdio::null());
        }
        let mut child = start.spawn().map_err(|error| {
            let found = error.kind() != std::io::ErrorKind::NotFound;
            let exit = if found { CANNOT_RUN } else { NO_COMMAND };
            let message = format!("{} can't be started: {error}", program.to_string_lossy());
            Failure::new(exit, message, "check the command after --, its permissions and PATH")
        })?;
        if let (Some(tee), Some(output)) = (tee, child.stdout.take()) {
            tee.begin(output, child.stderr.take());
        }
        let terminal = if ground == Ground::Fore { Terminal::open() } else { None };
        let group = Self { id: Pid::from_child(&child), terminal, leader: None };
        if let Some(terminal) = &group.terminal {
            terminal.give(group.id);
        }
        Ok(group)
    }

    /// To everyone in it. Nobody may be left; then there is nobody to miss it.
    fn send(&self, signal: Signal) {
        kill_process_group(self.id, signal).ok();
    }

    /// Whether the command has ended, and how. If it was stopped from the terminal, we stop with it.
    fn look(&mut self, lease: &HeldLease) -> Result<Option<WaitStatus>, Failure> {
        while self.leader.is_none() {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            let Some((_, status)) = waitpid(Some(self.id), options).map_err(std::io::Error::from)? else {
                break;
            };
            if status.stopped() {
                self.stopped(status, lease);
            } else {
                self.leader = Some(status);
            }
        }
        if self.leader.is_some()
            && let Some(terminal) = &self.terminal
        {
            terminal.take_back(self.id);
        }
        Ok(self.leader)
    }

    /// The shell that started us sees only us: it must see us stop too, or nobody could continue the command.
    fn stopped(&self, status: WaitStatus, lease: &HeldLease) {
        let (Some(terminal), Some(signal)) = (&self.terminal, status.stopping_signal()) else { return };
        if ![Signal::TSTP, Signal::TTIN, Signal::TTOU].iter().any(|stop| stop.as_raw() == signal) {
            return;
        }
        if signal != Signal::TSTP.as_raw() && terminal.is_with(self.id) {
            // It wanted to read before it was given the terminal, and now it has it.
            self.send(Signal::CONT);
            return;
        }
        terminal.take_back(self.id);
        kill_current_process_group(Signal::TSTP).ok();
        // Continued. We didn't renew meanwhile: if the lease is over, the command must not run on.
        if !lease.is_lost() {
            // In this order: once it has the terminal, it may be stopped from there, and that must not be undone.
            self.send(Signal::CONT);
            terminal.give(self.id);
        }
    }

    /// Asks everyone in the group to stop, and after a while doesn't ask. Returns when nobody is left.
    async fn stop(&mut self, grace: Duration, signals: &mut Signals) -> Result<bool, Failure> {
        self.send(Signal::TERM);
        // Someone who is stopped can't end.
        self.send(Signal::CONT);
        let mut killed = false;
        let mut until = Instant::now() + grace;
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_gone()? {
            tokio::select! {
                _ = looks.tick() => {}
                signal = signals.next() => self.send(signal),
                () = sleep_until(until) => {
                    if killed {
                        break;
                    }
                    killed = true;
                    self.send(Signal::KILL);
                    until = Instant::now() + KILLED_MAX;
                }
            }
        }
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.id);
        }
        Ok(killed)
    }

    /// Whether the leader and everyone it left behind have ended.
    fn is_gone(&mut self) -> Result<bool, Failure> {
        if self.leader.is_none() {
            let status = waitpid(Some(self.id), WaitOptions::NOHANG).map_err(std::io::Error::from)?;
            self.leader = status.map(|(_, status)| status);
        }
        Ok(self.leader.is_some() && test_kill_process_group(self.id) == Err(Errno::SRCH))
    }
}

fn ended(status: WaitStatus) -> Ended {
    match status.terminating_signal() {
        Some(signal) => Ended::Itself { code: exit_code(signal), by_signal: true },
        None => {
            let code = status.exit_status().map_or(u8::MAX, |code| (code & 0xff) as u8);
            Ended::Itself { code, by_signal: false }
        }
    }
}
