use super::*;

/// Time in which each step of a test that succeeds ends.
const LONG: Duration = Duration::from_secs(30);

fn scrape() -> Result<String, Error> {
    Ok("gearv_cpus 4\n".into())
}

/// Returns the answer to a request, and how often it asked for the metrics.
fn answered(request: &str, mut scrape: impl FnMut() -> Result<String, Error>) -> (String, usize) {
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut count = 0;
    answer(server, LONG, &mut || {
        count += 1;
        scrape()
    })
    .unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    (text, count)
}

#[test]
fn a_scraper_gets_the_metrics() {
    let fields = "Host: localhost\r\nAccept: text/plain;version=0.0.4\r\n\r\n";
    for target in ["/metrics", "/metrics?debug=1"] {
        let request = format!("GET {target} HTTP/1.1\r\n{fields}");
        let (text, count) = answered(&request, scrape);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: 13\r\n\
             Connection: close\r\n\r\n\
             gearv_cpus 4\n"
        );
        assert_eq!(count, 1);
    }
    let (text, _) = answered("HEAD /metrics HTTP/1.0\r\n\r\n", scrape);
    assert!(text.contains("Content-Length: 13\r\n") && text.ends_with("\r\n\r\n"));
}

#[test]
fn other_requests_are_refused_and_ask_gdm_nothing() {
    for (request, status) in [
        ("GET / HTTP/1.1", "404 Not Found"),
        ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
        ("GET /metrics HTTP/2.0", "505 HTTP Version Not Supported"),
        ("GET /metrics", "400 Bad Request"),
        ("", "400 Bad Request"),
    ] {
        let (text, count) = answered(&format!("{request}\r\n\r\n"), scrape);
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{text}"
        );
        assert_eq!(text.contains("Allow: GET, HEAD"), status.starts_with("405"));
        assert_eq!(count, 0, "{request}");
    }
}

#[test]
fn a_scraper_is_told_that_gdm_does_not_answer() {
    let (text, _) = answered("GET /metrics HTTP/1.1\r\n\r\n", || {
        Err(Error::unreachable("no gdm answers at /run/control"))
    });
    assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    assert!(text.ends_with("\r\n\r\nno gdm answers at /run/control\n"));
}

/// A request of the longest length gets the metrics, and a longer one is refused, whether or not it
/// has an end. The client reads the answer, and the end of the connection behind it.
#[test]
fn a_request_that_is_too_long_is_refused() {
    let start = "GET /metrics HTTP/1.1\r\nCookie: ";
    let of_length = |length: usize| {
        let value = "x".repeat(length - start.len() - END.len());
        format!("{start}{value}\r\n\r\n")
    };
    let (text, count) = answered(&of_length(MOST), scrape);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert_eq!(count, 1);
    let endless = format!("{start}{}", "x".repeat(MOST));
    for request in [of_length(MOST + 1), of_length(10 * MOST), endless] {
        let (text, count) = answered(&request, scrape);
        let status = "HTTP/1.1 431 Request Header Fields Too Large\r\n";
        assert!(text.starts_with(status), "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        assert_eq!(count, 0);
    }
    // A body counts for nothing: it is not read.
    let with_body = of_length(MOST) + "body";
    assert!(answered(&with_body, scrape).0.starts_with("HTTP/1.1 200 "));
}

/// The time counts for the whole request: a byte now and then does not begin it anew.
#[test]
fn a_slow_client_is_left() {
    let (mut client, server) = UnixStream::pair().unwrap();
    let patience = Duration::from_millis(200);
    let typist = std::thread::spawn(move || {
        // Ends when the other side has left, or long after the patience of the server.
        let bytes = 0..600;
        bytes
            .take_while(|_| {
                std::thread::sleep(Duration::from_millis(10));
                client.write_all(b"x").is_ok()
            })
            .count()
    });
    let error = answer(server, patience, &mut scrape).unwrap_err();
    let is_late = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
    assert!(is_late, "{error}");
    assert!(typist.join().unwrap() < 600);
}

/// A client that takes nothing is left, too.
#[test]
fn a_client_that_reads_nothing_is_left() {
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    // More than the buffers of the socket have room for.
    let patience = Duration::from_millis(200);
    let error = answer(server, patience, &mut || Ok("x".repeat(64 << 20))).unwrap_err();
    let is_late = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
    assert!(is_late, "{error}");
}

#[test]
fn a_client_that_leaves_early_is_an_error() {
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(b"GET /metrics HT").unwrap();
    drop(client);
    let error = answer(server, LONG, &mut scrape).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}
