use super::*;
use baton_core::meter::Algorithm;

fn parsed(text: &str) -> BTreeMap<String, Definition> {
    let definitions = parse(text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    definitions
        .into_iter()
        .map(|(name, said)| (format!("{}/{}", name.namespace(), name.key()), said))
        .collect()
}

#[test]
fn names_are_read_with_their_namespaces_and_definitions_as_the_wire_has_them() {
    let text = "
limits:
  api: { limit: 100, windowMillis: 60000, burst: 20 }
  logins: { limit: 5, windowMillis: 900000, purpose: security }
  12: { limit: 1, windowMillis: 1 }
namespaces:
  default:
    limits:
      exports: { limit: 3, algorithm: in_flight }
  shop:
    limits:
      api: # the same name elsewhere is another limit
        limit: 10
        windowMillis: 1000
        overrides:
          - { key: acme, limit: 50 }
          - { key: 7, limit: 70 }
";
    let found = parsed(text);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["default/12", "default/api", "default/exports", "default/logins", "shop/api"]);
    let api = &found["default/api"];
    assert_eq!((api.limit, api.window_ms, api.burst), (100, 60_000, Some(20)));
    assert_eq!(found["default/logins"].algorithm, Algorithm::SlidingWindow);
    let overrides: Vec<_> = found["shop/api"].overrides.iter().map(|own| (&*own.key, own.limit)).collect();
    assert_eq!(overrides, [("7", 70), ("acme", 50)]);
    for nothing in ["limits: {}", "namespaces: {}", "limits:\nnamespaces: {a: {limits: {}}}"] {
        assert!(parsed(nothing).is_empty(), "{nothing}");
    }
    assert_eq!(parsed(r#"{"limits": {"api": {"limit": 1, "windowMillis": 5}}}"#).len(), 1, "JSON is YAML");
}

#[test]
fn what_is_wrong_is_refused_with_the_limit_the_field_and_the_reason() {
    for (text, said) in [
        // The file.
        ("", "it has neither `limits` nor `namespaces`"),
        ("# later", "it has neither `limits` nor `namespaces`"),
        ("limits:", "it has neither `limits` nor `namespaces`"),
        ("just words", "expected mapping start (line 1)"),
        ("limits: [a]", "field limits: expected mapping start (line 1)"),
        ("limits: {a: {limit: 1", "(line 1)"),
        (
            "limits: {}\nlimit: {}",
            "field limit: unknown field `limit`, expected one of limits, namespaces (line 2)",
        ),
        ("limits: {}\nlimits: {}", "field limits: it is there twice (line 2)"),
        ("limits: {}\n---\nlimits: {}", "only single YAML document"),
        ("namespaces: {shop: }", "field namespaces.shop.limits: it is missing"),
        ("namespaces: {shop: {api: {}}}", "field namespaces.shop.api: unknown field"),
        // Names.
        ("limits: {a: {limit: 1}, a: {limit: 1}}", "limit \"a\": it is there twice (line 1)"),
        (
            "limits: {a: {limit: 1}}\nnamespaces: {default: {limits: {a: {limit: 2}}}}",
            "limit \"a\": it is in `limits` and in the namespace \"default\"",
        ),
        (
            "limits: {..: {limit: 1, windowMillis: 1}}",
            "limit \"..\", field name: name must not be \".\" or \"..\"",
        ),
        (
            "namespaces: {\"\": {limits: {a: {limit: 1}}}}",
            "limit \"a\" of the namespace \"\", field namespace: namespace must have 1 to 128 bytes, not 0",
        ),
        ("limits: {~: {limit: 1}}", "null is not allowed here"),
        // Fields.
        (
            "limits:\n  a.b:\n    limit: 1\n    windowMilis: 1",
            "limit \"a.b\", field windowMilis: unknown field `windowMilis`, expected one of limit, windowMillis, ",
        ),
        ("limits: {a: {windowMillis: 1}}", "limit \"a\", field limit: it is missing (line 1)"),
        ("limits: {a: }", "limit \"a\", field limit: it is missing (line 1)"),
        ("limits: {a: {limit: 1, limit: 1}}", "limit \"a\", field limit: it is there twice (line 1)"),
        ("limits: {a: {limit: many}}", "limit \"a\", field limit: it must be a whole number (line 1)"),
        ("limits: {a: {limit: 1.5}}", "limit \"a\", field limit: it must be a whole number (line 1)"),
        ("limits: {a: {limit: -1}}", "limit \"a\", field limit: it must be a whole number (line 1)"),
        (
            "limits: {a: {limit: 1, purpose: fun}}",
            "limit \"a\", field purpose: unknown variant `fun`, expected one of security, ",
        ),
        ("limits: {a: {limit: 1, dryRun: yes}}", "limit \"a\", field dryRun: invalid boolean"),
        (
            "namespaces: {shop: {limits: {a: {limit: 1, overrides: [{key: k, limit: x}]}}}}",
            "limit \"a\" of the namespace \"shop\", field overrides[0].limit: it must be a whole number (line 1)",
        ),
        // What the fields say.
        ("limits: {a: {limit: 0, windowMillis: 1}}", "limit \"a\", field limit: limit must be 1 to "),
        ("limits: {a: {limit: 1}}", "limit \"a\", field windowMillis: windowMillis is needed"),
        (
            "limits: {a: {limit: 1, windowMillis: 1, algorithm: fixed_window, burst: 2}}",
            "limit \"a\", field burst: burst goes with the algorithm token_bucket only",
        ),
        (
            "limits: {a: {limit: 1, windowMillis: 1, overrides: [{key: k, limit: 1}, {key: k, limit: 2}]}}",
            "limit \"a\", field overrides[1].key: a key can have one limit of its own",
        ),
        // What would grow.
        (
            "limits: {a: &x {limit: 1, windowMillis: 1}, b: *x}",
            "anchors and aliases can't be used here (line 1)",
        ),
        ("limits: {a: *x}", "reference to unknown value"),
        ("limits: {a: {<<: {limit: 1}}}", "merge"),
        ("limits: {a: !own {limit: 1}}", "unsupported tag `!own`"),
    ] {
        let fault = parse(text).expect_err(text).to_string();
        assert!(fault.contains(said), "{text:?} is refused with {fault:?}");
    }
}

#[test]
fn one_wrong_definition_among_right_ones_refuses_all() {
    let text = "limits: {a: {limit: 1, windowMillis: 1}, b: {limit: 0, windowMillis: 1}, c: {limit: 1, windowMillis: 1}}";
    assert!(parse(text).is_err());
}

#[test]
fn more_limits_than_a_file_may_have_are_refused() {
    let file = |number: usize| {
        let own: String = (0..10).map(|key| format!("{{key: {key}, limit: 1}},")).collect();
        let line = |index| format!("  l{index}: {{ limit: 1, windowMillis: 1, overrides: [{own}] }}\n");
        format!("limits:\n{}", (0..number).map(line).collect::<String>())
    };
    assert_eq!(parsed(&file(DEFINITIONS_MAX)).len(), DEFINITIONS_MAX);
    let fault = parse(&file(DEFINITIONS_MAX + 1)).unwrap_err().to_string();
    assert_eq!(fault, "it has 10001 limits, and 10000 is the most");
}

#[test]
fn what_a_fault_quotes_has_a_bound() {
    let long = "x".repeat(100_000);
    for text in [
        format!("limits: {{? {long} : {{limit: 1, windowMillis: 1}}}}"),
        format!("limits: {{a: {{limit: 1, purpose: {long}}}}}"),
        format!("limits: {{a: {{? {long} : 1}}}}"),
    ] {
        let fault = parse(&text).unwrap_err().to_string();
        assert!(fault.len() < 1_000, "{} bytes", fault.len());
    }
}
