//! Properties that hold for any log.

use proptest::prelude::*;

use super::super::tests::{prefix, route, snapshot};
use super::tests::{get, replay, run};
use super::*;

proptest! {
    #[test]
    fn any_log_is_read_without_panic(
        log in "([{}:,\\[\"\\\\ \n?/é-]|\\] \"|\\\\x|GET |/b/c| HTTP/1.1|192.0.2.1 - - |a\\.test|\" \"|\
                \"log\"|\"method\":\"GET\"|\"path\":\"/b\"|\"host\":\"a\\.test\"){0,60}",
        size in 1_usize..9,
    ) {
        let configuration = ReplayConfiguration::new([snapshot(vec![("a.test", vec![route("b", prefix("/b"))])])]);
        if let Ok(report) = run(&replay(&configuration, &configuration, None), &log, size) {
            prop_assert_eq!(report.changed, 0, "{}", log);
        }
    }

    #[test]
    fn report_does_not_depend_on_threads(
        lines in prop::collection::vec(
            prop::sample::select(vec![
                "/", "/b", "/b/1?token=x", "/b/2", "/c", "/c/1", "/c/2", "/d", "nonsense", "tcp", "vhost",
            ]),
            0..60,
        ),
        size in 1_usize..400,
        threads in 2_usize..5,
    ) {
        let old = vec![route("b", prefix("/b")), route("c", prefix("/c"))];
        let new = vec![route("x", prefix("/b")), route("y", prefix("/c/1"))];
        let [old, new] = [old, new].map(|routes| {
            let other = vec![route("d", prefix("/d"))];
            ReplayConfiguration::new([snapshot(vec![("a.test", routes), ("b.test", other)])])
        });
        let line = |line: &&str| match *line {
            "nonsense" => "nonsense\n".to_owned(),
            "tcp" => "{\"port\":5432,\"protocol\":\"TCP\"}\n".to_owned(),
            "vhost" => format!("b.test {}", get("/d")),
            path => get(path),
        };
        let log: String = lines.iter().map(line).collect();
        let alone = replay(&old, &new, Some("a.test"));
        let threads = NonZeroUsize::new(threads).unwrap();
        let expected = run(&alone, &log, size).map_err(|it| it.to_string());
        let found = run(&Replay { threads, ..alone }, &log, size).map_err(|it| it.to_string());
        prop_assert_eq!(found, expected);
    }
}
