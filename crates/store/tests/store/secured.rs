//! Servers that want to know who we are, over TLS: who may is let in, everybody else is told why, without the secret.

use crate::simulated::{committed, put};
use baton_store::{OpenStoreError, Store, open};
use baton_testkit::certificates::Certificates;
use std::path::Path;
use std::sync::Arc;

const PASSWORD: &str = "open-sesame";
const WRONG: &str = "open-barley";

async fn opened(url: &str) -> Result<Arc<dyn Store>, OpenStoreError> {
    open(url, Path::new("unused")).await
}

async fn works(url: &str) {
    let store = opened(url).await.unwrap_or_else(|error| panic!("not let in: {error}"));
    committed(&*store, [put("a", "1")]).await;
}

/// It is refused in words that contain one of these, and no secret.
async fn refused(url: &str, because: &[&str]) {
    let Err(error) = opened(url).await else { panic!("let in: {because:?}") };
    let error = error.to_string();
    assert!(!error.contains(PASSWORD) && !error.contains(WRONG), "{error}");
    assert!(because.iter().any(|words| error.contains(words)), "{error}");
}

/// A server's certificates, and an authority that has nothing to do with them.
fn authorities() -> (Certificates, Certificates) {
    (Certificates::new().unwrap(), Certificates::new().unwrap())
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use baton_testkit::servers::redis::Redis;

    async fn server(certificates: &Certificates, clients: &str) -> Redis {
        let file = |path: std::path::PathBuf| path.display().to_string();
        let (certificate, key) = (file(certificates.certificate("server")), file(certificates.key("server")));
        let (authority, password) = (file(certificates.authority()), format!(">{PASSWORD}"));
        let settings = [
            &["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &authority][..],
            &["--tls-auth-clients", clients, "--user", "baton", "on", &password, "~*", "&*", "+@all"],
            &["--user", "default", "off"],
        ];
        Redis::start(&settings.concat()).await.unwrap()
    }

    #[tokio::test]
    async fn a_password_and_a_certificate_are_checked() {
        let (certificates, others) = authorities();
        let server = server(&certificates, "no").await;
        let address = server.address;
        let with = |authority: &Certificates| authority.authority().display().to_string();
        let (ca, other) = (with(&certificates), with(&others));
        works(&format!("rediss://baton:{PASSWORD}@{address}?ca={ca}")).await;
        refused(&format!("rediss://baton:{WRONG}@{address}?ca={ca}"), &["WRONGPASS", "uthenticat"]).await;
        refused(&format!("rediss://{address}?ca={ca}"), &["NOAUTH", "uthenticat"]).await;
        refused(&format!("rediss://baton:{PASSWORD}@{address}?ca={other}"), &["ertificate"]).await;
        refused(&format!("rediss://baton:{PASSWORD}@{address}"), &["ertificate"]).await;
        refused(&format!("redis://baton:{PASSWORD}@{address}"), &["TLS"]).await;
        refused(&format!("redis://baton:{PASSWORD}@{address}?ca={ca}"), &["rediss://"]).await;
    }

    #[tokio::test]
    async fn a_server_may_want_a_certificate_of_ours() {
        let certificates = Certificates::new().unwrap();
        let server = server(&certificates, "yes").await;
        let url =
            format!("rediss://baton:{PASSWORD}@{}?ca={}", server.address, certificates.authority().display());
        let (certificate, key) = (certificates.certificate("client"), certificates.key("client"));
        works(&format!("{url}&cert={}&key={}", certificate.display(), key.display())).await;
        refused(&url, &["ertificate"]).await;
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_checks_a_password_and_its_certificate_is_checked() {
    use baton_testkit::servers::postgres::Postgres;
    let (certificates, others) = authorities();
    let mut server = Postgres::new().unwrap();
    let file = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    let certificate = server.place("server.pem", &file(certificates.certificate("server"))).unwrap();
    let key = server.place("server.key", &file(certificates.key("server"))).unwrap();
    // Whoever sets things up is let in as before; the store's own user has to log in, and over TLS.
    let rules = "hostssl all tester 127.0.0.1/32 scram-sha-256\n\
                 host all tester 127.0.0.1/32 reject\n\
                 host all baton 127.0.0.1/32 trust\n";
    server.place("pg_hba.conf", rules.as_bytes()).unwrap();
    let certificate = format!("ssl_cert_file={}", certificate.display());
    let key = format!("ssl_key_file={}", key.display());
    server.start_with(&["ssl=on", &certificate, &key]).await.unwrap();
    server.sql(&format!("CREATE ROLE tester LOGIN PASSWORD '{PASSWORD}'")).unwrap();
    server.sql("GRANT CREATE ON DATABASE postgres TO tester").unwrap();
    let at = server.address();
    let url = |password: &str, how: &str| format!("postgres://tester:{password}@{at}/postgres?{how}");
    let verified = format!("sslmode=verify-full&sslrootcert={}", certificates.authority().display());
    let mistaken = format!("sslmode=verify-full&sslrootcert={}", others.authority().display());
    works(&url(PASSWORD, &verified)).await;
    works(&url(PASSWORD, "sslmode=require")).await;
    works(&url(PASSWORD, "")).await;
    refused(&url(WRONG, &verified), &["password authentication failed"]).await;
    refused(&format!("postgres://tester@{at}/postgres?{verified}"), &["password"]).await;
    refused(&url(PASSWORD, &mistaken), &["ertificate"]).await;
    refused(&url(PASSWORD, "sslmode=disable"), &["rejects connection"]).await;
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_checks_a_password_and_its_certificate_is_checked() {
    use baton_testkit::servers::etcd::Etcd;
    let (certificates, others) = authorities();
    let mut server = Etcd::with_tls(&certificates).unwrap();
    server.start().await.unwrap();
    let root = format!("root:{PASSWORD}");
    server.control(&["user", "add", &root]).unwrap();
    server.control(&["user", "add", &format!("baton:{PASSWORD}")]).unwrap();
    server.control(&["role", "add", "store"]).unwrap();
    server.control(&["role", "grant-permission", "store", "--prefix=true", "readwrite", "baton"]).unwrap();
    server.control(&["user", "grant-role", "baton", "store"]).unwrap();
    server.control(&["auth", "enable"]).unwrap();
    let at = server.address(0);
    let with = |authority: &Certificates| authority.authority().display().to_string();
    let (ca, other) = (with(&certificates), with(&others));
    let good = format!("etcds://baton:{PASSWORD}@{at}?ca={ca}");
    works(&good).await;
    refused(&format!("etcds://baton:{WRONG}@{at}?ca={ca}"), &["authentication failed"]).await;
    refused(&format!("etcds://{at}?ca={ca}"), &["user name is empty"]).await;
    refused(&format!("etcds://baton:{PASSWORD}@{at}/elsewhere?ca={ca}"), &["permission denied"]).await;
    refused(&format!("etcds://baton:{PASSWORD}@{at}?ca={other}"), &["ertificate"]).await;
    refused(&format!("etcd://baton:{PASSWORD}@{at}"), &["ransport error"]).await;

    // Tokens of before aren't known any more: a new one is had without anybody noticing.
    let store = opened(&good).await.unwrap();
    committed(&*store, [put("a", "1")]).await;
    server.control(&["--user", &root, "auth", "disable"]).unwrap();
    server.control(&["auth", "enable"]).unwrap();
    committed(&*store, [put("a", "2")]).await;
}
