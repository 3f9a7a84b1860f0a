//! The `baton` binary: the server, and its command line.
//!
//! # Layout
//! One file a command group: [`serve`], [`lock`], [`locks`], [`elect`], [`elections`], [`once`], [`cron`], [`worker`], [`fence`], [`limits`],
//! [`counter`], [`set`], [`register`], [`map`], [`nodes`], [`status`]; [`advise`] (with [`monotone`]) and [`simulate`] need no server. What they share: [`client`] (where the server is), [`output`] (JSON and tables), [`names`] (lists of them),
//! [`duration`], [`traffic`] (a limit and who checks it), [`failure`] (messages, help, exit codes).

mod advise;
mod client;
mod counter;
mod cron;
mod duration;
mod elect;
mod elections;
mod failure;
mod fence;
mod limits;
mod lock;
mod locks;
mod map;
mod monotone;
mod names;
mod nodes;
mod once;
mod output;
mod register;
mod replica;
mod serve;
mod set;
mod simulate;
mod status;
mod traffic;
mod worker;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// A lock call makes some dozens of small, short-lived allocations, freed by another thread than made them: the system's
/// allocator took a fifth of the server's time for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Locks with fencing tokens for programs that run as many copies
#[derive(Parser, Debug)]
#[command(
    name = "baton",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Examples:\n  \
    baton serve\n  \
    baton lock nightly-report -- ./report.sh\n  \
    baton elect scheduler -- ./scheduler\n  \
    baton locks ls --prefix nightly-\n  \
    baton limits check api acme && ./call.sh\n\n\
    Exit codes of `baton lock` and `baton elect`: the command's own (128 + n if signal n ended it), 75 if the lock was not acquired, \
    76 if it was lost while the command ran, 126 or 127 if the command can't be run or found."
)]
struct Cli {
    #[command(flatten)]
    client: client::ClientOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the server
    #[command(after_help = "Examples:\n  \
        baton serve\n  \
        baton serve --listen 127.0.0.1:9000 --data /var/lib/baton\n  \
        BATON_LOG_FORMAT=json baton serve --config baton.toml\n\n\
        A flag wins over its environment variable, and that over the file.")]
    Serve(serve::ServeArguments),
    /// Run a command while holding a lock
    #[command(after_help = "Examples:\n  \
        baton lock migrate-db -- ./migrate.sh\n  \
        baton lock nightly-report --try -- ./report.sh         exits with 75 if another host is at it\n  \
        baton lock deploy --wait 5m --ttl 1m -- make deploy\n  \
        baton lock import -- sh -c 'psql -v token=$BATON_FENCING_TOKEN -f import.sql'\n\n\
        The command finds BATON_FENCING_TOKEN and BATON_LOCK_KEY in its environment, and gets the signals that are \
        sent to baton. If the lock is lost, its whole process group gets SIGTERM, and SIGKILL after --grace; baton \
        then exits with 76.")]
    Lock(lock::LockArguments),
    /// Run a command while leading an election
    #[command(after_help = "Examples:\n  \
        baton elect scheduler -- ./scheduler\n  \
        baton elect scheduler --again --value '{\"address\":\"10.0.0.7:8080\"}' -- ./scheduler\n  \
        baton elect compactor --priority -10 --ttl 30s -- ./compact.sh\n\n\
        The command finds BATON_EPOCH (also as BATON_FENCING_TOKEN) and BATON_ELECTION in its environment, and gets the \
        signals that are sent to baton. When it ends, baton resigns. If the leadership is lost, its whole process group \
        gets SIGTERM, and SIGKILL after --grace; baton then exits with 76, or campaigns --again.")]
    Elect(elect::ElectArguments),
    /// Look at elections
    #[command(subcommand)]
    Elections(elections::ElectionsCommand),
    /// Look at locks, or take one away by force
    #[command(subcommand)]
    Locks(locks::LocksCommand),
    /// Run a command once, however many call; all others get what it printed
    #[command(after_help = "Examples:\n  \
        baton once migrate-2026-11 -- ./migrate.sh\n  \
        baton once report:2026-11-16 --keep 7d -- ./report.sh\n  \
        baton once webhook:$EVENT --try --retry-failed -- ./handle.sh   exits with 75 if another host is at it\n\n\
        The first caller runs the command; its exit code and standard output (32 KiB of it) are kept. Later callers wait \
        for it, print what was kept and exit with the same code, without running anything. If the first caller dies, its \
        claim ends with --ttl and the next one runs the command. A command that was ended by a signal isn't kept, nor, \
        with --retry-failed, one that failed. The command finds BATON_FENCING_TOKEN and BATON_ONCE_KEY in its \
        environment. Exit codes besides the command's: 75 if it wasn't done in time, 76 if the claim was lost while the \
        command ran, 126 or 127 if the command can't be run or found.")]
    Once(once::OnceArguments),
    /// Take the runs of a queue, and run a command for each
    #[command(after_help = worker::HELP)]
    Worker(worker::WorkerArguments),
    /// Check fencing tokens at the server, for resources that can't compare them
    #[command(subcommand)]
    Fence(fence::FenceCommand),
    /// Define limits, look at them, and check whether a key may go on
    #[command(subcommand)]
    Limits(limits::LimitsCommand),
    /// Define jobs, run them, look at what became of them; and when a schedule would be due
    #[command(subcommand)]
    Cron(cron::CronCommand),
    /// Count without agreement: each node by itself, all the same in the end
    #[command(subcommand)]
    Counter(counter::CounterCommand),
    /// Collect elements without agreement
    #[command(subcommand)]
    Set(set::SetCommand),
    /// Keep values without agreement: the last write wins, or concurrent ones are kept
    #[command(subcommand)]
    Register(register::RegisterCommand),
    /// Keep counters, sets and registers together in a map, without agreement
    #[command(subcommand)]
    Map(map::MapCommand),
    /// Show the nodes that share the store, and how much of it each owns
    Nodes,
    /// See how far replicas are, and retire what is over
    #[command(subcommand)]
    Replica(replica::ReplicaCommand),
    /// Say which mechanism a limit should have, what each would cost and risk, and why; or whether an operation needs coordination
    #[command(after_help = advise::HELP)]
    Advise(Box<advise::AdviseArguments>),
    /// Simulate a limit under traffic and failures: what it would admit, and what the store would see
    #[command(after_help = simulate::HELP)]
    Simulate(Box<simulate::SimulateArguments>),
    /// Show the server and what its store promises
    Status,
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  baton completions bash > /etc/bash_completion.d/baton")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If nobody reads it, the code still says it.
            error.print().ok();
            return if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let client = &cli.client;
    match cli.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Lock(arguments) => wait_for(lock::run(arguments, client)),
        Command::Elect(arguments) => wait_for(elect::run(arguments, client)),
        Command::Elections(command) => wait_for(elections::run(command, client)),
        Command::Locks(command) => wait_for(locks::run(command, client)),
        Command::Once(arguments) => wait_for(once::run(arguments, client)),
        Command::Worker(arguments) => wait_for(worker::run(arguments, client)),
        Command::Fence(command) => wait_for(fence::run(command, client)),
        Command::Limits(command) => wait_for(limits::run(command, client)),
        Command::Cron(cron::CronCommand::Next(arguments)) => wait_for(cron::next(arguments, client)),
        Command::Cron(cron::CronCommand::Calendar(command)) => {
            wait_for(cron::calendars::run(command, client))
        }
        Command::Cron(cron::CronCommand::Jobs(command)) => wait_for(cron::jobs::run(command, client)),
        Command::Counter(command) => wait_for(counter::run(command, client)),
        Command::Set(command) => wait_for(set::run(command, client)),
        Command::Register(command) => wait_for(register::run(command, client)),
        Command::Map(command) => wait_for(map::run(command, client)),
        Command::Nodes => wait_for(nodes::run(client)),
        Command::Replica(command) => wait_for(replica::run(command, client)),
        Command::Advise(arguments) => advise::run(&arguments, client.output == output::Format::Json),
        Command::Simulate(arguments) => simulate::run(&arguments, client.output == output::Format::Json),
        Command::Status => wait_for(status::run(client)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "baton", &mut std::io::stdout());
            Ok(0)
        }
    }
}

/// One thread is plenty for a client, and keeps signals where job control expects them.
fn wait_for(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn complain(failure: &Failure) {
    if failure.message.is_empty() {
        return;
    }
    let mut out = std::io::stderr().lock();
    let (red, cyan, plain) = match out.is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m"),
        false => ("", "", ""),
    };
    // Standard error may be closed; the exit code says it all the same.
    writeln!(out, "{red}baton:{plain} {}", failure.message).ok();
    if let Some(help) = &failure.help {
        writeln!(out, "{cyan}help:{plain} {help}").ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_comes_after_two_dashes_is_the_command_s() {
        let cli = Cli::try_parse_from(["baton", "lock", "k", "--try", "--", "sh", "--ttl", "x"]);
        assert!(matches!(cli.unwrap().command, Command::Lock(_)));
        assert!(Cli::try_parse_from(["baton", "lock", "k"]).is_err(), "a command is needed");
        assert!(Cli::try_parse_from(["baton", "lock", "k", "--try", "--wait", "1s", "--", "x"]).is_err());
    }
}
