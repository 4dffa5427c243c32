//! Starts that can't be: one clear line, the right exit code, and nothing else.

use std::net::TcpListener;

use warmpath_tests::{Datapath, Ended, RouterOptions, run};

const EXIT_FAILED: i32 = 1;
const EXIT_USAGE: i32 = 64;

#[track_caller]
fn assert_one_line(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.log);
    assert_eq!(ended.log.lines().count(), 1, "{}", ended.log);
    for word in words {
        assert!(ended.log.contains(word), "no {word:?} in {}", ended.log);
    }
}

fn taken() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

#[test]
fn a_port_in_use_is_one_line_that_names_it() {
    let (_listener, address) = taken();
    for (key, free) in [("listen", "admin"), ("admin", "listen"), ("metrics", "listen")] {
        let (key_flag, free_flag) = (format!("--{key}"), format!("--{free}"));
        let mut words = vec!["serve", "--backend", "http://127.0.0.1:9"];
        words.extend([key_flag.as_str(), &address, &free_flag, "127.0.0.1:0"]);
        if key == "metrics" {
            words.extend(["--admin", "off"]);
        }
        assert_one_line(
            &run(&words),
            EXIT_FAILED,
            &[key, &address, "another process listens there"],
        );
    }
    let ended = run(&["engine", "--listen", &address]);
    assert_one_line(&ended, EXIT_FAILED, &[&address]);
}

#[test]
fn an_unknown_key_is_one_line_that_names_it() {
    let options = RouterOptions::new(Datapath::Copy, &[]).backend("127.0.0.1:9");
    let ended = options.config("[limits]\nconections_max = 3").end();
    assert_one_line(&ended, EXIT_USAGE, &["limits.conections_max", "connections_max"]);
}

#[test]
fn a_bad_value_of_a_flag_is_one_line_that_names_it() {
    for (flag, value) in [
        ("--listen", "127.0.0.1"),
        ("--policy", "rr"),
        ("--datapath", "fast"),
        ("--workers", "many"),
        ("--paths", "some"),
    ] {
        let ended = run(&["serve", "--backend", "http://127.0.0.1:9", flag, value]);
        assert_one_line(&ended, EXIT_USAGE, &[flag, value]);
    }
}

#[test]
fn no_backend_is_one_line_with_the_remedy() {
    assert_one_line(&run(&["serve"]), EXIT_USAGE, &["no backend", "--backend"]);
    let options = RouterOptions::new(Datapath::Copy, &[]);
    let ended = options.config("workers = 1").end();
    assert_one_line(&ended, EXIT_USAGE, &["backend", "--backend"]);
}

#[test]
fn a_configuration_file_that_isnt_there_is_one_line_that_names_it() {
    for words in [["serve", "--config"], ["check", "--config"]] {
        let ended = run(&[words[0], words[1], "/nonexistent/warmpath.toml"]);
        assert_one_line(&ended, EXIT_USAGE, &["/nonexistent/warmpath.toml"]);
    }
}

#[test]
fn wrong_usage_of_any_subcommand_exits_64() {
    for words in [
        &["--bogus"][..],
        &["bogus"],
        &[],
        &["serve", "--bogus"],
        &["serve", "--config"],
        &["check", "--bogus"],
        &["check"],
        &["bench", "--bogus"],
        &["bench"],
        &["bench", "--target", "ftp://127.0.0.1:1"],
        &["bench", "--target", "http://127.0.0.1:1", "--rate", "fast"],
        &["engine", "--bogus"],
        &["engine", "--count", "0"],
        &["engine", "--listen", "nowhere"],
        &["engine", "--fault", "{\"kind\":\"fire\"}"],
    ] {
        let ended = run(words);
        assert_eq!(ended.code, Some(EXIT_USAGE), "{words:?}: {}", ended.log);
        assert!(!ended.log.is_empty(), "{words:?} says nothing");
        assert!(!ended.log.contains("panicked"), "{words:?}: {}", ended.log);
    }
}

#[test]
fn help_and_version_exit_0_and_say_nothing_on_standard_error() {
    for words in [
        &["--help"][..],
        &["--version"],
        &["help"],
        &["serve", "--help"],
        &["check", "--help"],
        &["bench", "--help"],
        &["engine", "--help"],
    ] {
        let ended = run(words);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""), "{words:?}");
    }
}
