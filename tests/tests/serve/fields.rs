//! Fields and targets: what is forwarded, what ends at the router.

use warmpath_tests::{Client, Router, Upstream, for_each_datapath};

#[test]
fn hop_by_hop_fields_of_a_request_end_here_and_the_others_arrive_in_order() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(
            b"GET /v1/models HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\nConnection: X-Hop, keep-alive\r\nX-Hop: secret\r\n\
              Keep-Alive: timeout=9\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nX-B: two  words\r\n\
              Authorization: Bearer k\r\nX-A: 3\r\n\r\n",
        );
        assert_eq!(client.response("GET").status(), 200);
        let head = &upstream.heads()[0];
        for name in ["x-hop", "keep-alive", "proxy-connection"] {
            assert!(head.all(name).is_empty(), "{name} was forwarded");
        }
        assert_eq!(head.one("host"), Some("h:1"));
        assert_eq!(head.all("x-a"), ["1", "3"]);
        assert_eq!(head.one("x-b"), Some("two  words"));
        assert_eq!(head.one("authorization"), Some("Bearer k"));
    });
}

#[test]
fn hop_by_hop_fields_of_a_response_end_here_and_the_others_arrive_in_order() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(
            b"HTTP/1.1 200 Fine\r\nSet-Cookie: a=1\r\nConnection: X-Hop\r\nX-Hop: secret\r\nKeep-Alive: timeout=5\r\n\
              Set-Cookie: b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT\r\nX-Request-Id: r\r\nContent-Length: 2\r\n\r\nok",
        );
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
        let response = client.response("GET");
        assert!(response.head.all("x-hop").is_empty() && response.head.all("keep-alive").is_empty());
        assert_eq!(
            response.head.all("set-cookie"),
            ["a=1", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"]
        );
        assert_eq!(response.head.one("x-request-id"), Some("r"));
        assert_eq!(response.body, b"ok");
    });
}

#[test]
fn an_absolute_form_target_becomes_origin_form_and_its_authority_the_host() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET http://engine.example:81/v1/models?a=b HTTP/1.1\r\nHost: other\r\n\r\n");
        assert_eq!(client.response("GET").status(), 200);
        client.send(b"GET http://engine.example HTTP/1.1\r\nHost: other\r\n\r\n");
        assert_eq!(client.response("GET").status(), 200);
        let heads = upstream.heads();
        assert_eq!(heads[0].target(), "/v1/models?a=b");
        assert_eq!(heads[0].all("host"), ["engine.example:81"]);
        assert_eq!(heads[1].target(), "/");
        assert_eq!(heads[1].all("host"), ["engine.example"]);
    });
}

#[test]
fn the_target_arrives_byte_for_byte() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        let targets = [
            "/v1//models",
            "/v1/%6dodels?q=%20&&=a",
            "/v1/../x/./y",
            "/v1/m?x=a/b?c",
        ];
        for target in targets {
            client.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            assert_eq!(client.response("GET").status(), 200, "{target}");
        }
        assert_eq!(upstream.targets(), targets);
    });
}

#[test]
fn options_with_an_asterisk_passes_as_it_is() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 204 No Content\r\nAllow: GET\r\n\r\n");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response("OPTIONS").status(), 204);
        assert_eq!(upstream.targets(), ["*"]);
    });
}
