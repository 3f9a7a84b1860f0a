//! Under a terminal: the command reads from it, Ctrl-C reaches it, and a spinner says what is waited for.

use crate::process::{eventually, line_of};
use crate::server::{Server, quoted};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A session on a terminal of its own, running one `baton` command.
struct Session {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Session {
    fn start(server: &Server, script: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || File::options().read(true).write(true).open(&path).unwrap();
        let child = Command::new("env")
            .args(["--default-signal", "setsid", "--ctty", "--wait", "sh", "-c", script])
            .env("BATON", env!("CARGO_BIN_EXE_baton"))
            .env("BATON_SERVER", &server.url)
            .stdin(side())
            .stdout(Stdio::from(side()))
            .stderr(Stdio::from(side()))
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(size @ 1..) = reader.read(&mut piece) {
                shown.lock().unwrap().extend_from_slice(&piece[..size]);
            }
        });
        Self { child, keyboard, screen }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn shows(&self, text: &str) {
        eventually(&format!("the screen shows {text:?}"), || {
            String::from_utf8_lossy(&self.screen.lock().unwrap()).contains(text)
        });
    }

    fn code(&mut self) -> i32 {
        let mut status = None;
        eventually("the session ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code().unwrap()
    }
}

#[test]
fn the_command_reads_from_the_terminal_and_what_comes_after_it_does_too() {
    let server = Server::start();
    let mut session =
        Session::start(&server, "\"$BATON\" lock k -- sh -c 'read a; echo first=$a'; read b; echo second=$b");
    session.types("one\n");
    session.shows("first=one");
    session.types("two\n");
    session.shows("second=two");
    assert_eq!(session.code(), 0);
}

#[test]
fn ctrl_c_reaches_the_command_and_the_lock_is_given_back() {
    let server = Server::start();
    let ready = server.file("ready");
    let script = format!(
        "exec \"$BATON\" lock k -- sh -c \"trap 'exit 33' INT; echo > {}; while :; do sleep 0.02; done\"",
        quoted(&ready).replace('\'', "")
    );
    let mut session = Session::start(&server, &script);
    line_of(&ready);
    session.types("\u{3}");
    assert_eq!(session.code(), 33);
    assert!(!server.is_held("k"));
}

#[test]
fn a_waiter_shows_holder_and_place_and_ctrl_c_leaves_the_queue() {
    let server = Server::start();
    let ready = server.file("ready");
    let script = format!("echo > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&ready));
    let _holder = crate::process::Running::start(&mut server.command(&[
        "lock",
        "k",
        "--owner",
        "the-holder",
        "--",
        "sh",
        "-c",
        &script,
    ]));
    line_of(&ready);
    let mut session = Session::start(&server, "exec \"$BATON\" lock k -- true");
    session.shows("held by the-holder, place 1 of 1");
    eventually("it waits", || server.waiting("k") == 1);
    session.types("\u{3}");
    assert_eq!(session.code(), 130);
    eventually("it left the queue", || server.waiting("k") == 0);
}

#[test]
fn ctrl_z_stops_command_and_baton_and_fg_continues_both() {
    let server = Server::start();
    let (ready, go) = (server.file("ready"), server.file("go"));
    // An interactive shell has job control: it notices the stop, and gets its prompt back. The command starts nobody meanwhile: a shell that is
    // about to can't be stopped until its child has begun, and that child is stopped before.
    let command = format!(
        "\"$BATON\" lock k -- sh -c 'echo > {}; while [ ! -e {} ]; do :; done; exit 12'",
        ready.display(),
        go.display()
    );
    let mut session = Session::start(&server, "exec sh -i");
    session.types(&format!("{command}\n"));
    line_of(&ready);
    session.types("\u{1a}");
    session.types("echo back-$((40+2))\n");
    session.shows("back-42");
    session.types("fg\n");
    std::fs::write(&go, "").unwrap();
    session.types("echo code-$?\n");
    session.shows("code-12");
    assert!(!server.is_held("k"));
    session.types("exit 0\n");
    assert_eq!(session.code(), 0);
}
