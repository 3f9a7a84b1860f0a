//! Health, status, metrics, description, correlation.

use crate::harness::Baton;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn health_status_and_description_are_served() {
    let baton = Baton::start().await;
    assert_eq!(baton.get("/healthz").await.ok(), json!({ "status": "ok" }));
    assert_eq!(baton.get("/readyz").await.ok(), json!({ "status": "ok" }));
    assert_eq!(baton.get("/readyz?x=1").await.field(), "x");
    let status = baton.get("/v1/status").await.ok();
    assert_eq!(status["ready"], true);
    let name = status["store"]["name"].as_str().unwrap();
    let url = baton_testkit::store_url(std::path::Path::new("x"));
    assert!(url.starts_with(name), "{name} for {url}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let document = baton.get("/openapi.json").await.ok();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    let head = baton.client().await.call("HEAD", "/v1/status", b"").await;
    assert_eq!(head.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_by_route_and_never_show_a_key() {
    let baton = Baton::start().await;
    let grant = baton.acquire("a-key-of-mine", "an-owner-of-mine").await;
    baton.get("/v1/locks/another-key-of-mine").await;
    baton.get("/a-path-of-mine").await;
    let metrics = baton.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    for line in [
        "baton_http_requests_total{route=\"/v1/locks/{lockKey}/acquire\",status=\"2xx\"} 1",
        "baton_http_requests_total{route=\"/v1/locks/{lockKey}\",status=\"4xx\"} 1",
        "baton_http_requests_total{route=\"unknown\",status=\"4xx\"} 1",
        "baton_http_request_duration_seconds_count{route=\"/v1/locks/{lockKey}/acquire\"} 1",
        "baton_http_in_flight{class=\"waiting\"} 0",
    ] {
        assert!(metrics.text.contains(line), "{line} in {}", metrics.text);
    }
    let resident = metrics.text.lines().find(|line| line.starts_with("baton_process_resident_memory_bytes "));
    let bytes: u64 = resident.unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(bytes > 1024 * 1024, "{bytes}");
    assert!(!metrics.text.contains("of-mine"));
    assert!(!metrics.text.contains(grant["lockToken"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_name_for_its_request_comes_back_and_nobody_elses() {
    let baton = Baton::start().await;
    let mut client = baton.client().await;
    for (header, wanted) in [
        ("x-correlation-id: abc-1\r\n", Some("abc-1")),
        ("x-correlation-id: not one word\r\n", None),
        ("", None),
    ] {
        client.send(format!("GET /v1/locks/k HTTP/1.1\r\n{header}\r\n").as_bytes()).await.unwrap();
        assert_eq!(client.answer("GET").await.unwrap().header("x-correlation-id"), wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exposed_address_or_an_unknown_store_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let config = baton_server::Config { data: directory.path().into(), ..Default::default() };
    let exposed = baton_server::Config { listen: "0.0.0.0:0".parse().unwrap(), ..config.clone() };
    let error = baton_server::Server::start(exposed).await.err().unwrap().to_string();
    assert!(error.contains("0.0.0.0:0") && error.contains("--insecure"), "{error}");
    let unknown = baton_server::Config { store: "nonsense:".into(), ..config };
    let error = baton_server::Server::start(unknown).await.err().unwrap().to_string();
    assert!(error.contains("embedded:"), "{error}");
}
