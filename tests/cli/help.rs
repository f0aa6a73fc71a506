use crate::run::run;

const COMMANDS: [&[&str]; 8] = [
    &["serve"],
    &["apps"],
    &["app"],
    &["app", "show"],
    &["driver"],
    &["fetch"],
    &["check-config"],
    &["demo"],
];

#[test]
fn version_is_that_of_the_package() {
    let version = run(&["--version"]).expect(0).out;
    assert_eq!(version, concat!("shuffled ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let help = run(&["--help"]).expect(0);
    for command in COMMANDS {
        help.line(&format!("  {} ", command[0]));
    }
    help.line("Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.");
}

#[test]
fn every_flag_has_a_sentence() {
    for command in COMMANDS {
        for help in ["-h", "--help"] {
            let help = run(&[command, &[help]].concat()).expect(0);
            help.line("Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.");
            let mut lines = help.out.lines().peekable();
            let mut flags = 0;
            while let Some(line) = lines.next() {
                if !line.trim_start().starts_with('-') || line.trim_start().starts_with("- ") {
                    continue;
                }
                flags += 1;
                let beside = line.trim().split_once("  ").map(|(_, text)| text);
                let below = lines.peek().map(|line| line.trim());
                let sentence = beside.or(below).unwrap_or_default().trim();
                assert!(sentence.contains(' '), "{command:?}: nothing is said of {line:?}\n{help}");
            }
            assert!(flags > 0, "{command:?}: --help at least\n{help}");
        }
    }
}

#[test]
fn wrong_usage_is_2_and_names_what_is_wrong() {
    let cases: [(&[&str], &str); 9] = [
        (&[], "Usage: shuffled"),
        (&["serv"], "'serve'"),
        (&["serve", "--lisen", "127.0.0.1:0"], "'--listen'"),
        (&["apps", "--watch", "0"], "--watch"),
        (&["apps", "-o", "yaml"], "json"),
        (&["apps", "--admin", "ftp://localhost:1"], "http://agent-1:7338"),
        (&["app", "show"], "<ID>"),
        (&["driver", "--app", "app-1"], "--server"),
        (&["fetch", "--app", "a", "--exec", "1", "shuffle_0_0_0"], "--out <DIR>|--verify"),
    ];
    for (args, text) in cases {
        run(args).expect(2).complains(&[text]);
    }
}
