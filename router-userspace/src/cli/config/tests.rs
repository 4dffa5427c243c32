use super::*;

fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    match host {
        "engine-1" => Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]),
        _ => Err(std::io::Error::other("no such name")),
    }
}

fn read_text(text: &str) -> Result<Loaded, Vec<Fault>> {
    read(Some(("warmpath.toml", text)), &Flags::default(), &resolve)
}

fn faults(text: &str) -> Vec<String> {
    let faults = read_text(text).expect_err("faulty");
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn the_example_holds_the_defaults_and_every_key() {
    let loaded = read_text(EXAMPLE).expect("good");
    assert_eq!(loaded.warnings, []);
    let mut config = loaded.config;
    assert_eq!(config.backends.len(), 2);
    let [first, second] = &config.backends[..] else {
        panic!("two backends")
    };
    assert_eq!(
        BackendConfig {
            name: second.name.clone(),
            addr: second.addr,
            ..first.clone()
        },
        *second,
        "the first backend spells out what the second leaves out"
    );
    config.backends.clear();
    assert_eq!(config, Config::default());
    for key in known_keys() {
        let name = key.rsplit('.').next().expect("a name");
        let written = EXAMPLE.lines().any(|line| {
            let line = line.trim_start_matches(['#', '[']);
            line.starts_with(&format!("{name} =")) || line.trim_end_matches(']') == name
        });
        assert!(written, "{key} is not in the example");
    }
}

#[test]
fn every_fault_of_a_file_is_reported_at_once_with_its_remedy() {
    let text = r#"
        listen = ["127.0.0.1", "0.0.0.0:8080"]
        metrics = ":9181"
        workers = -1
        paths = "inferense"
        head = "10s"
        colour = "red"
        [[backend]]
        url = "http://127.0.0.1:8000"
        wieght = 2
        [[backend]]
        addr = "engine-1:8000"
        weight = 0
        [[backend]]
        addr = "10.0.0.5"
        [[backend]]
        name = "lost soul"
        [policy]
        name = "rr"
        load_factor = 0.5
        [limits]
        body_bytes_max = "64MB"
        [timeouts]
        head = 10
        drain = "off"
        keep_alive = "soon"
        [retry]
        statuses = [200]
        generation = "yes"
        [health]
        path = "health"
        [load]
        interval = "20ms"
        timeout = "off"
        every = "1s"
    "#;
    let expected = [
        r#"warmpath.toml: listen = ["127.0.0.1", "0.0.0.0:8080"]: port missing; write 127.0.0.1:8080"#,
        r#"warmpath.toml: metrics = ":9181": IP address missing; write 0.0.0.0:9181 for every address of this host"#,
        r"warmpath.toml: workers = -1: out of range; write 0 to 1024",
        r#"warmpath.toml: paths = "inferense": not one of its values; did you mean "inference"?"#,
        r#"warmpath.toml: colour = "red": unknown key; remove it; `warmpath check --example` prints every key"#,
        r#"warmpath.toml: head = "10s": unknown key; it belongs in the section [timeouts]"#,
        r"warmpath.toml: backend[0].wieght = 2: unknown key; did you mean weight?",
        r"warmpath.toml: backend[1].weight = 0: out of range; write 1 to 1000",
        r#"warmpath.toml: backend[2].addr = "10.0.0.5": port missing; write 10.0.0.5:8000"#,
        r#"warmpath.toml: backend[3].url: missing; write url = "http://HOST:PORT""#,
        r#"warmpath.toml: backend[3].name = "lost soul": has a quote, a backslash or a space, or is too long; write at most 128 letters, digits and signs"#,
        r#"warmpath.toml: policy.name = "rr": not one of its values; write one of "round_robin", "random", "least_load", "power_of_two", "consistent_hash", "prefix_threshold", "prefix_score", "least_cost""#,
        r"warmpath.toml: policy.load_factor = 0.5: out of range; write 1.01 to 100",
        r#"warmpath.toml: limits.body_bytes_max = "64MB": not a size; write 1 to 1099511627776 bytes, such as "64KiB""#,
        r#"warmpath.toml: timeouts.head = 10: unit missing; write "10s" or "10ms""#,
        r#"warmpath.toml: timeouts.keep_alive = "soon": not a duration; write a number and a unit, such as "250ms", "10s", "5m" or "1h""#,
        r#"warmpath.toml: timeouts.drain = "off": can't be off; write a number and a unit, such as "250ms", "10s", "5m" or "1h""#,
        r"warmpath.toml: retry.statuses = [200]: not a list of statuses from 400 to 599; write [429, 503] or []",
        r#"warmpath.toml: retry.generation = "yes": neither true nor false; write true or false, without quotes"#,
        r#"warmpath.toml: health.path = "health": not a path; write it with a leading / and without spaces"#,
        r#"warmpath.toml: load.timeout = "off": can't be off; write a number and a unit, such as "250ms", "10s", "5m" or "1h""#,
        r#"warmpath.toml: load.every = "1s": unknown key; remove it; `warmpath check --example` prints every key"#,
        r#"warmpath.toml: load.interval = "20ms": engines would do little else; write "50ms" or more"#,
    ];
    assert_eq!(faults(text), expected);
}

#[test]
fn what_is_not_toml_is_reported_with_its_line_and_column() {
    let found = faults("listen = [\n  \"127.0.0.1:8080\"\nworkers = = 2\n");
    assert!(!found.is_empty());
    assert!(
        found
            .iter()
            .all(|fault| fault.contains("not TOML") && !fault.contains('\n')),
        "{found:?}"
    );
    let twice = faults("workers = 1\nworkers = 2\n");
    assert!(
        twice[0].starts_with("warmpath.toml: line 2, column 1: not TOML: duplicate key"),
        "{twice:?}"
    );
}

#[test]
fn settings_that_contradict_each_other_are_faults() {
    let text = r#"
        listen = "0.0.0.0:9180"
        metrics = "127.0.0.1:9180"
        [[backend]]
        addr = "127.0.0.1:9180"
        [[backend]]
        addr = "10.0.0.1:8000"
        [[backend]]
        addr = "10.0.0.1:8000"
        [[backend]]
        addr = "10.0.0.2:8000"
        name = "10.0.0.1:8000"
        [limits]
        body_buffer_bytes = "1MiB"
        body_buffers_total_bytes = "512KiB"
    "#;
    let expected = [
        r#"warmpath.toml: admin = "127.0.0.1:9180": the same port as listen (0.0.0.0:9180); give each listener a port of its own"#,
        r#"warmpath.toml: metrics = "127.0.0.1:9180": the same port as listen (0.0.0.0:9180); give each listener a port of its own"#,
        r#"warmpath.toml: backend[0] = "127.0.0.1:9180": the router itself"#,
        r#"warmpath.toml: backend[2] = "10.0.0.1:8000": the same address as backend[1]; give each engine once, with a weight"#,
        r#"warmpath.toml: backend[3] = "10.0.0.1:8000": the same name as backend[1], so their metrics would be one; give each its own name"#,
        r"warmpath.toml: limits.body_buffer_bytes = 1048576: over limits.body_buffers_total_bytes, so that no body could be held; lower it or raise the total",
    ];
    assert_eq!(faults(text), expected);
}

#[test]
fn odd_settings_are_warned_of() {
    let text = r#"
        [[backend]]
        addr = "10.0.0.1:8000"
        [[backend]]
        addr = "10.0.0.1:8000"
        name = "again"
        [timeouts]
        upstream_idle = "6s"
        [load]
        interval = "1s"
    "#;
    let loaded = read_text(text).expect("good");
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(
        warnings[0].contains("the same address as backend[0]"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("timeouts.upstream_idle"), "{warnings:?}");
    assert!(warnings[2].contains("load.interval"), "{warnings:?}");
}

#[test]
fn flags_override_the_file_and_their_faults_are_told_as_flags() {
    let text = "listen = \"127.0.0.1:1\"\nworkers = 3\n[[backend]]\naddr = \"10.0.0.1:1\"\n";
    let flags = Flags {
        listen: vec!["127.0.0.1:2".to_owned()],
        backend: vec!["http://engine-1:8000".to_owned()],
        workers: Some("4".to_owned()),
        policy: Some("random".to_owned()),
        admin: Some("off".to_owned()),
        ..Flags::default()
    };
    let config = read(Some(("warmpath.toml", text)), &flags, &resolve)
        .expect("good")
        .config;
    assert_eq!(config.server.listen, [SocketAddr::from(([127, 0, 0, 1], 2))]);
    assert_eq!(config.backends[0].name, "engine-1:8000");
    assert_eq!(config.server.workers, 4);
    assert_eq!(config.policy.kind.name(), "random");
    assert_eq!(config.admin.listen, None);
    let flags = Flags {
        backend: vec!["10.0.0.5".to_owned(), "https://a:1".to_owned()],
        policy: Some("randon".to_owned()),
        admin: Some("0.0.0.0:9180".to_owned()),
        ..Flags::default()
    };
    let faults = read(None, &flags, &resolve).expect_err("faulty");
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let expected = [
        r#"--backend "10.0.0.5": port missing; write 10.0.0.5:8000"#,
        r#"--backend "https://a:1": https to a backend isn't supported yet; write http://HOST:PORT"#,
        r#"--policy "randon": not one of its values; did you mean "random"?"#,
        r#"--admin "0.0.0.0:9180": reachable from other hosts without a token; set admin_token_file in the file of --config, or listen on 127.0.0.1"#,
    ];
    assert_eq!(faults, expected);
}

/// The `[[tcp]]` sections of the example, which stand there as comments.
fn tcp_example() -> String {
    let lines = EXAMPLE.lines().skip_while(|line| *line != "#[[tcp]]");
    let lines = lines.take_while(|line| !line.is_empty());
    lines
        .map(|line| format!("{}\n", line.strip_prefix('#').unwrap_or(line)))
        .collect()
}

#[test]
fn the_example_of_a_tcp_listener_spells_out_its_defaults() {
    let text: String = tcp_example()
        .lines()
        .filter(|line| !line.starts_with(' '))
        .fold(String::new(), |text, line| text + line + "\n");
    let full = read_text(&text).expect("good").config;
    let least = "[[tcp]]\nlisten = \"127.0.0.1:9443\"\n[[tcp.backend]]\naddr = \"127.0.0.1:8443\"\n";
    let least = read_text(least).expect("good").config;
    assert_eq!(full, least);
    let [tcp] = &full.tcp[..] else {
        panic!("one listener")
    };
    assert_eq!((tcp.backends.len(), tcp.listen.len()), (1, 1));
    assert_eq!(
        crate::server::TcpConfig {
            name: String::new(),
            listen: Vec::new(),
            backends: Vec::new(),
            ..tcp.clone()
        },
        crate::server::TcpConfig::default()
    );
    assert_eq!(full.server.listen, [], "no engine: no HTTP");
}

#[test]
fn every_fault_of_a_tcp_listener_is_reported_at_once() {
    let text = r#"
        [[tcp]]
        listen = "9443"
        hash = "snl"
        idle_timeout = "off"
        hello_timeout = 5
        proxy_protocol = "v3"
        trusted_proxies = ["10.0.0.1/8"]
        url = "http://a:1"
        [[tcp]]
        listen = ["127.0.0.1:9443", "[::1]:9443"]
        trusted_proxies = ["10.0.0.0/8", "fd00::/200"]
        [[tcp.backend]]
        addr = "http://127.0.0.1:1"
        [[tcp.backend]]
        wieght = 1
        max_in_flight = 1
        [[tcp]]
        name = "a b"
        [[tcp.backend]]
        addr = "127.0.0.1:1"
        weight = 1001
    "#;
    let expected = [
        r#"warmpath.toml: tcp[0].listen = "9443": not an IP address with a port; write IP:PORT, such as 0.0.0.0:8080"#,
        r#"warmpath.toml: tcp[0].hash = "snl": not one of its values; did you mean "sni"?"#,
        r#"warmpath.toml: tcp[0].idle_timeout = "off": can't be off; write a number and a unit, such as "250ms", "10s", "5m" or "1h""#,
        r#"warmpath.toml: tcp[0].hello_timeout = 5: unit missing; write "5s" or "5ms""#,
        r#"warmpath.toml: tcp[0].proxy_protocol = "v3": not one of its values; did you mean "v1"?"#,
        r#"warmpath.toml: tcp[0].trusted_proxies = ["10.0.0.1/8"]: 10.0.0.1/8 has bits beyond its first 8; set them to 0, or write 10.0.0.1 for one address"#,
        r#"warmpath.toml: tcp[0].backend: none given; add a [[tcp.backend]] section with addr = "HOST:PORT""#,
        r#"warmpath.toml: tcp[0].url = "http://a:1": unknown key; it belongs in a [[backend]] section"#,
        r#"warmpath.toml: tcp[1].trusted_proxies = ["10.0.0.0/8", "fd00::/200"]: fd00::/200 is no range of IP addresses; write an IP address, or one with its number of fixed bits such as 10.0.0.0/8"#,
        r#"warmpath.toml: tcp[1].backend[0].addr = "http://127.0.0.1:1": a URL, not an address; write url = "http://127.0.0.1:1""#,
        r#"warmpath.toml: tcp[1].backend[1].addr: missing; write addr = "HOST:PORT""#,
        r"warmpath.toml: tcp[1].backend[1].max_in_flight = 1: unknown key; it belongs in a [[backend]] section",
        r"warmpath.toml: tcp[1].backend[1].wieght = 1: unknown key; did you mean weight?",
        r#"warmpath.toml: tcp[2].listen: missing; write listen = "IP:PORT""#,
        r#"warmpath.toml: tcp[2].name = "a b": has a quote, a backslash or a space, or is too long; write at most 128 letters, digits and signs"#,
        r"warmpath.toml: tcp[2].backend[0].weight = 1001: out of range; write 1 to 1000",
    ];
    assert_eq!(faults(text), expected);
}

#[test]
fn tcp_listeners_that_contradict_each_other_are_faults() {
    let text = r#"
        listen = "0.0.0.0:8080"
        [[backend]]
        addr = "10.0.0.1:8000"
        [[tcp]]
        listen = "127.0.0.1:8080"
        name = "x"
        [[tcp.backend]]
        addr = "127.0.0.1:8080"
        [[tcp.backend]]
        addr = "10.0.0.2:1"
        [[tcp.backend]]
        addr = "10.0.0.2:1"
        [[tcp]]
        listen = "127.0.0.1:8081"
        name = "x"
        [[tcp.backend]]
        addr = "10.0.0.2:1"
    "#;
    let expected = [
        r#"warmpath.toml: tcp[0].listen = "127.0.0.1:8080": the same port as listen (0.0.0.0:8080); give each listener a port of its own"#,
        r#"warmpath.toml: tcp[0].backend[0] = "127.0.0.1:8080": the listener itself"#,
        r#"warmpath.toml: tcp[0].backend[2] = "10.0.0.2:1": the same name as backend[1], so their metrics would be one; give each its own name"#,
        r#"warmpath.toml: tcp[1] = "x": the same name as tcp[0], so their metrics would be one; give each its own name"#,
    ];
    assert_eq!(faults(text), expected);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = read_text(&text);
    }

    #[test]
    fn a_damaged_example_is_read_or_refused_and_every_fault_is_one_line(
        at in 0..EXAMPLE.len(), length in 0..20usize, insert in "[\\[\\]=\"a-z0-9.\\n-]{0,8}",
    ) {
        let damaged: String = [&EXAMPLE[..at], &insert, EXAMPLE.get(at + length..).unwrap_or("")].concat();
        if let Err(faults) = read_text(&damaged) {
            proptest::prop_assert!(!faults.is_empty());
            proptest::prop_assert!(faults.iter().all(|fault| !fault.to_string().contains('\n')), "{:?}", faults);
        }
    }
}
