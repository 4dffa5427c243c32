//! The default policy over sockets: prompts go back to where their prefix was computed.

use warmpath_tests::{Client, Router, Upstream, for_each_datapath, wait_until};

/// Conversations, more than engines.
const CONVERSATIONS: usize = 9;
/// Turns of each.
const TURNS: usize = 4;

/// An engine that answers with its name.
fn named(name: &'static str) -> Upstream {
    Upstream::start(move |conn| {
        while conn.request()?.is_some() {
            conn.answer("200 OK", "", name.as_bytes())?;
        }
        Ok(())
    })
}

/// A conversation's request: each turn repeats all before it.
fn turn(conversation: usize, turn: usize) -> Vec<u8> {
    let said: Vec<String> = (0..=turn)
        .map(|at| {
            let words = format!("conversation {conversation}, turn {at}: ").repeat(40);
            format!("{{\"role\":\"user\",\"content\":\"{words}\"}}")
        })
        .collect();
    let body = format!("{{\"model\":\"m\",\"messages\":[{}]}}", said.join(","));
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

fn ask(client: &mut Client, request: &[u8]) -> String {
    client.send(request);
    String::from_utf8(client.response("POST").body).expect("a name")
}

#[test]
fn each_turn_of_a_conversation_goes_where_the_one_before_it_went() {
    for_each_datapath(|datapath| {
        let engines = [named("first"), named("second"), named("third")];
        let router = Router::start(datapath, &[&engines[0], &engines[1], &engines[2]]);
        let mut client = Client::connect(router.address());
        let homes: Vec<String> = (0..CONVERSATIONS)
            .map(|of| ask(&mut client, &turn(of, 0)))
            .collect();
        // The index is written by a thread of its own: the second turn waits until it knows of the first.
        for (of, home) in homes.iter().enumerate() {
            wait_until("the prefix is known", || ask(&mut client, &turn(of, 0)) == *home);
        }
        for at in 1..TURNS {
            for (of, home) in homes.iter().enumerate() {
                assert_eq!(
                    ask(&mut client, &turn(of, at)),
                    *home,
                    "conversation {of}, turn {at}"
                );
            }
        }
        assert!(
            router.count("warmpath_decisions_total", "reason=\"affinity\"")
                >= (CONVERSATIONS * (TURNS - 1)) as f64
        );
        router.assert_idle();
    });
}
