//! Hellos built by hand, hellos of OpenSSL, and everything that isn't one.

use proptest::prelude::*;

use super::*;

/// A ClientHello of OpenSSL 3 for "Engine-7.Example.internal", TLS 1.2 at most.
const OPENSSL_TLS12: &str = "16030100d1010000cd03031986551fb9b3a98e860e4fb1f2098f12046dee1536bf11c991e99109802108d60\
    0001ec02cc030c02bc02fcca9cca8c024c028c023c027009f009e006b006700ff010000860000001e001c000019456e67696e652d372e\
    4578616d706c652e696e7465726e616c000b000403000102000a000c000a001d0017001e00190018002300000010000e000c026832086\
    87474702f312e310016000000170000000d002a0028040305030603080708080809080a080b0804080508060401050106010303030103\
    02040205020602";

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("hex") as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn vector(width: usize, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    [&length[4 - width..], bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, data)].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    extension(0, &vector(2, &[&[0][..], &vector(2, name)].concat()))
}

/// A handshake message; `None` = without an extensions block at all.
fn message(session: &[u8], ciphers: &[u8], extensions: Option<&[u8]>) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &vector(1, session),
        &vector(2, ciphers),
        &vector(1, &[0]),
        &extensions.map_or(Vec::new(), |block| vector(2, block)),
    ]
    .concat();
    [&[1][..], &vector(3, &body)].concat()
}

/// `message` in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message
        .chunks(size)
        .flat_map(|part| [&[22, 3, 1][..], &vector(2, part)].concat())
        .collect()
}

fn hello(extensions: &[u8]) -> Vec<u8> {
    records(&message(&[9; 32], &[0x13, 1, 0x13, 2], Some(extensions)), 1 << 14)
}

fn read(stream: &[u8]) -> Hello {
    HelloReader::new().push(stream)
}

/// Pushes byte by byte; the answer and how many bytes it took.
fn read_bytewise(stream: &[u8]) -> (Hello, usize) {
    let mut reader = HelloReader::new();
    for (index, byte) in stream.iter().enumerate() {
        let found = reader.push(std::slice::from_ref(byte));
        if found != Hello::More {
            return (found, index + 1);
        }
    }
    (Hello::More, stream.len())
}

#[test]
fn the_name_of_a_real_client_is_found_whatever_the_split() {
    let stream = bytes_of(OPENSSL_TLS12);
    let name = Hello::Name("engine-7.example.internal".to_owned());
    assert_eq!(read(&stream), name);
    assert_eq!(read_bytewise(&stream), (name.clone(), stream.len()));
    for at in 0..stream.len() {
        let mut reader = HelloReader::new();
        assert_eq!(reader.push(&stream[..at]), Hello::More, "split at {at}");
        assert_eq!(reader.push(&stream[at..]), name, "split at {at}");
    }
}

#[test]
fn a_hello_without_a_name_is_told_from_what_is_none() {
    let alpn = extension(16, &vector(2, &vector(1, b"h2")));
    assert_eq!(read(&hello(&alpn)), Hello::NoName);
    assert_eq!(read(&hello(&[])), Hello::NoName);
    assert_eq!(read(&records(&message(&[], &[0, 47], None), 100)), Hello::NoName);
    // A list with names of another type only.
    let other = extension(0, &vector(2, &[&[9][..], &vector(2, b"x")].concat()));
    assert_eq!(read(&hello(&other)), Hello::NoName);
}

#[test]
fn what_breaks_the_grammar_is_not_tls() {
    let twice = [sni(b"a.example"), sni(b"b.example")].concat();
    let long = vec![b'a'; NAME_BYTES_MAX + 1];
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("http", b"GET / HTTP/1.1\r\n".to_vec()),
        ("SSL 2", vec![0x80, 0x2e, 1, 0, 2]),
        ("an alert", vec![21, 3, 1, 0, 2, 1, 0]),
        ("another major version", vec![22, 2, 1, 0, 2, 1, 0]),
        ("an empty record", vec![22, 3, 1, 0, 0]),
        ("a record over its bound", vec![22, 3, 1, 0x40, 1]),
        ("a server hello", records(&[2, 0, 0, 1, 0], 100)),
        ("two names", hello(&twice)),
        ("an empty name", hello(&sni(b""))),
        ("a name with a blank", hello(&sni(b"a b"))),
        ("a name that isn't ASCII", hello(&sni("ä.example".as_bytes()))),
        ("a name over its bound", hello(&sni(&long))),
        ("an empty list of names", hello(&extension(0, &[0, 0]))),
        (
            "bytes behind the list",
            hello(&extension(0, &[0, 4, 0, 0, 1, b'a', 0])),
        ),
        ("an extension that is cut", hello(&[0, 16, 0, 9, 1])),
        ("no cipher suites", records(&message(&[], &[], Some(&[])), 100)),
        (
            "half a cipher suite",
            records(&message(&[], &[1, 2, 3], Some(&[])), 100),
        ),
        (
            "a session id over its bound",
            records(&message(&[1; 33], &[0, 47], Some(&[])), 100),
        ),
    ];
    for (what, stream) in cases {
        assert_eq!(read(&stream), Hello::NotTls, "{what}");
        assert_eq!(read_bytewise(&stream).0, Hello::NotTls, "{what}, byte by byte");
    }
}

#[test]
fn a_hello_at_its_bound_is_read_and_one_byte_more_is_too_long() {
    let empty = message(&[], &[0, 47], Some(&sni(b"a.example"))).len() - MESSAGE_HEADER_BYTES;
    for (over, expected) in [(0, Hello::Name("a.example".to_owned())), (1, Hello::TooLong)] {
        let padding = extension(21, &vec![0; HELLO_BYTES_MAX - empty - 4 + over]);
        let message = message(&[], &[0, 47], Some(&[sni(b"a.example"), padding].concat()));
        let stream = records(&message, 1000);
        assert_eq!(read(&stream), expected);
        let (found, bytes) = read_bytewise(&stream);
        assert_eq!(found, expected);
        if over > 0 {
            assert_eq!(
                bytes,
                RECORD_HEADER_BYTES + MESSAGE_HEADER_BYTES,
                "refused by its length alone"
            );
        }
    }
}

/// Searches the name by another way: joins all records first, then skips by offsets.
fn oracle(stream: &[u8]) -> Option<String> {
    let (mut message, mut at) = (Vec::new(), 0);
    while at < stream.len() {
        let length = usize::from(stream[at + 3]) << 8 | usize::from(stream[at + 4]);
        message.extend_from_slice(&stream[at + 5..at + 5 + length]);
        at += 5 + length;
    }
    let mut at = 4 + 34;
    at += 1 + usize::from(message[at]);
    at += 2 + (usize::from(message[at]) << 8 | usize::from(message[at + 1]));
    at += 1 + usize::from(message[at]);
    at += 2;
    while at < message.len() {
        let length = usize::from(message[at + 2]) << 8 | usize::from(message[at + 3]);
        if message[at..at + 2] == [0, 0] {
            return Some(String::from_utf8_lossy(&message[at + 9..at + 4 + length]).to_lowercase());
        }
        at += 4 + length;
    }
    None
}

proptest! {
    #[test]
    fn any_hello_in_any_records_and_reads_gives_its_name(
        name in proptest::option::of("[a-zA-Z0-9_-]{1,20}(\\.[a-zA-Z0-9-]{1,20}){0,4}"),
        before in proptest::collection::vec((1u16..100, proptest::collection::vec(any::<u8>(), 0..60)), 0..6),
        after in proptest::collection::vec((1u16..100, proptest::collection::vec(any::<u8>(), 0..60)), 0..6),
        session in proptest::collection::vec(any::<u8>(), 0..=32),
        record in 1usize..400,
        reads in proptest::collection::vec(1usize..300, 1..20),
    ) {
        let others = |list: &[(u16, Vec<u8>)]| -> Vec<u8> {
            list.iter().flat_map(|(kind, data)| extension(*kind, data)).collect()
        };
        let own = name.as_ref().map_or(Vec::new(), |name| sni(name.as_bytes()));
        let block = [others(&before), own, others(&after)].concat();
        let stream = records(&message(&session, &[0x13, 1], Some(&block)), record);
        let mut reader = HelloReader::new();
        let (mut found, mut rest, mut sizes) = (Hello::More, &stream[..], reads.iter().cycle());
        while found == Hello::More && !rest.is_empty() {
            let size = sizes.next().copied().unwrap_or(1).min(rest.len());
            found = reader.push(&rest[..size]);
            rest = &rest[size..];
        }
        let expected = oracle(&stream);
        prop_assert_eq!(&expected, &name.map(|name| name.to_lowercase()));
        prop_assert_eq!(found, expected.map_or(Hello::NoName, Hello::Name));
        prop_assert!(rest.is_empty(), "nothing is judged before the whole message is there");
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_splits_never_change_the_answer(
        mut stream in proptest::collection::vec(any::<u8>(), 0..400),
        damage in proptest::option::of((0usize..220, any::<u8>())),
    ) {
        if let Some((at, byte)) = damage {
            stream = bytes_of(OPENSSL_TLS12);
            let at = at % stream.len();
            stream[at] = byte;
        }
        prop_assert_eq!(read(&stream), read_bytewise(&stream).0);
    }
}
