//! Renaming, the way back, looking and counting.

use std::time::{Duration, SystemTime};

use super::*;

fn tombstone() -> Tombstone {
    Tombstone::new(7, 0)
}

/// Where the tombstone of the house's local dir is.
fn grave(house: &House) -> PathBuf {
    house.root.join("app").join(tombstone().as_str())
}

fn identity(roots: &LocalRoots, dir: &LocalDir) -> Identity {
    roots.probe(dir).unwrap().identity
}

fn measure(roots: &LocalRoots, dir: &LocalDir, limits: MeasureLimits) -> Measured {
    roots.measure(dir, None, limits, || ControlFlow::Continue(())).unwrap()
}

#[test]
fn there_and_back_and_gone() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        let is = identity(&roots, &dir);
        assert_eq!(roots.entomb(&dir, &tombstone(), Some(is)).unwrap(), Entombed::Done);
        assert!(!house.dir().exists() && grave(&house).join("0c/f").exists());
        // Again, as after a crash.
        assert_eq!(roots.entomb(&dir, &tombstone(), Some(is)).unwrap(), Entombed::Done);
        roots.exhume(&dir, &tombstone()).unwrap();
        assert!(house.dir().join("0c/f").exists() && !grave(&house).exists());
        assert_eq!(identity(&roots, &dir), is, "it is the same");

        roots.entomb(&dir, &tombstone(), None).unwrap();
        let removed = roots.remove_tombstone(&dir, &tombstone(), go_on).unwrap();
        assert_eq!(removed, Removed { files: 1, dirs: 2 });
        let again = roots.remove_tombstone(&dir, &tombstone(), go_on).unwrap();
        assert_eq!(again, Removed::default(), "as after a crash");
        assert_eq!(roots.entomb(&dir, &tombstone(), None).unwrap(), Entombed::WasGone);
        assert!(matches!(roots.exhume(&dir, &tombstone()), Err(ExhumeError::NotFound { .. })));
        house.assert_canary();
    }
}

#[test]
fn c14_nothing_is_replaced_on_either_way() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        roots.entomb(&dir, &tombstone(), None).unwrap();
        fs::create_dir(house.dir()).unwrap(); // empty, which a renaming would replace
        let back = roots.exhume(&dir, &tombstone());
        assert!(matches!(back, Err(ExhumeError::AlreadyThere { .. })), "{back:?}");
        assert!(grave(&house).join("0c/f").exists());
        // The one that is there now is another one; a tombstone of before a crash is what was meant.
        assert_eq!(roots.entomb(&dir, &tombstone(), None).unwrap(), Entombed::Done);
        assert!(house.dir().exists());
    }
}

#[test]
fn c14_another_directory_with_its_path_is_left_alone() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        let before = identity(&roots, &dir);
        fs::rename(house.dir(), house.base.join("moved")).unwrap();
        house.fill_app();
        assert_ne!(identity(&roots, &dir), before);
        let result = roots.entomb(&dir, &tombstone(), Some(before));
        assert!(matches!(result, Err(EntombError::NotTheSame { .. })), "{result:?}");
        assert!(house.dir().join("0c/f").exists() && !grave(&house).exists());
        // Nor is it taken for it when somebody gives it the tombstone's name.
        fs::rename(house.dir(), grave(&house)).unwrap();
        house.fill_app();
        let result = roots.entomb(&dir, &tombstone(), Some(before));
        assert!(matches!(result, Err(EntombError::NotTheSame { .. })), "{result:?}");
    }
}

#[test]
fn c51_links_in_its_place_or_above_it_lead_nowhere() {
    for strategy in STRATEGIES {
        for number in 0..2 {
            let house = House::new();
            let (roots, dir) = house.admitted(strategy);
            let (victim, target) = &house.links()[number];
            house.swap(victim, target);
            let refused = |error: &OpenError| {
                matches!(error, OpenError::SymbolicLink { .. } | OpenError::NotADirectory { .. })
            };
            match roots.entomb(&dir, &tombstone(), None) {
                Err(EntombError::Refused(error)) => assert!(refused(&error), "{error}"),
                other => panic!("{other:?}"),
            }
            assert!(refused(&roots.probe(&dir).unwrap_err()));
            assert!(roots.exhume(&dir, &tombstone()).is_err());
            house.assert_canary();
            assert!(!house.outside.join(tombstone().as_str()).exists());
        }
    }
}

/// The parent is swapped after the first step: what has the tombstone's name outside is not touched.
#[test]
fn c51_a_parent_swapped_between_the_steps_leads_nowhere() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        roots.entomb(&dir, &tombstone(), None).unwrap();
        house.fill(&house.outside, CANARY);
        let bait = house.outside.join(tombstone().as_str());
        fs::create_dir(&bait).unwrap();
        fs::write(bait.join("f"), CANARY).unwrap();
        house.swap(&house.root.join("app"), &house.outside);
        assert!(roots.remove_tombstone(&dir, &tombstone(), go_on).is_err());
        assert!(roots.exhume(&dir, &tombstone()).is_err());
        assert!(
            roots
                .measure(&dir, Some(&tombstone()), MeasureLimits::default(), || {
                    ControlFlow::Continue(())
                })
                .is_err()
        );
        assert!(bait.join("f").exists());
        house.assert_canary();
    }
}

#[test]
fn what_is_no_directory_is_not_renamed() {
    for strategy in STRATEGIES {
        let house = House::new();
        let roots = house.roots(strategy);
        let app = house.root.join("app");
        fs::write(app.join("file"), "x").unwrap();
        let _socket = UnixListener::bind(app.join("socket")).unwrap();
        rustix::fs::mknodat(CWD, app.join("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
        for name in ["file", "socket", "fifo"] {
            let dir = roots.admit(app.join(name).to_str().unwrap()).unwrap();
            let result = roots.entomb(&dir, &tombstone(), None);
            assert!(matches!(result, Err(EntombError::Refused(_))), "{name}: {result:?}");
            assert!(app.join(name).exists(), "{name}");
        }
    }
}

/// Where the directory above belongs to somebody else, it may still be emptied in place.
#[test]
fn a_parent_that_cannot_be_changed_is_told_from_other_failures() {
    std::thread::spawn(|| {
        heed_permissions();
        for strategy in STRATEGIES {
            let house = House::new();
            let (roots, dir) = house.admitted(strategy);
            fs::set_permissions(house.root.join("app"), PermissionsExt::from_mode(0o555)).unwrap();
            let result = roots.entomb(&dir, &tombstone(), None);
            assert!(matches!(result, Err(EntombError::CannotRename { .. })), "{result:?}");
            fs::set_permissions(house.root.join("app"), PermissionsExt::from_mode(0o755)).unwrap();
        }
    })
    .join()
    .unwrap();
}

#[test]
fn c08_a_look_tells_what_keeps_this_process_out() {
    std::thread::spawn(|| {
        heed_permissions();
        for (mode, readable) in [(0o700, true), (0o500, true), (0o300, false), (0o600, false)] {
            for strategy in STRATEGIES {
                let house = House::new();
                let (roots, dir) = house.admitted(strategy);
                fs::set_permissions(house.dir(), PermissionsExt::from_mode(mode)).unwrap();
                let probe = roots.probe(&dir).unwrap();
                assert_eq!(probe.owner, fs::metadata(house.dir()).unwrap().uid());
                match probe.readable {
                    Ok(()) => assert!(readable, "{mode:o}"),
                    Err(OpenError::Permission { mode: told, .. }) => {
                        assert!(!readable && told == mode, "{mode:o}: {told:o}");
                    }
                    Err(error) => panic!("{mode:o}: {error}"),
                }
                fs::set_permissions(house.dir(), PermissionsExt::from_mode(0o700)).unwrap();
            }
        }
    })
    .join()
    .unwrap();
}

#[test]
fn any_number_of_files_is_renamed_at_once() {
    for strategy in STRATEGIES {
        let house = House::in_memory();
        let (roots, dir) = house.admitted(strategy);
        for number in 0..5_000 {
            fs::write(house.dir().join(number.to_string()), "").unwrap();
        }
        roots.entomb(&dir, &tombstone(), None).unwrap();
        assert_eq!(fs::read_dir(grave(&house)).unwrap().count(), 5_001);
        let removed = roots.remove_tombstone(&dir, &tombstone(), go_on).unwrap();
        assert_eq!(removed, Removed { files: 5_001, dirs: 2 });
    }
}

#[test]
fn a_count_is_exact_up_to_its_limit_and_estimated_above() {
    for strategy in STRATEGIES {
        let house = House::in_memory();
        let (roots, dir) = house.admitted(strategy);
        fs::remove_file(house.dir().join("0c/f")).unwrap();
        for number in 0..100 {
            fs::write(house.dir().join(format!("0c/{number}")), [7; 50]).unwrap();
        }
        let whole = measure(&roots, &dir, MeasureLimits::default());
        assert_eq!((whole.files, whole.bytes, whole.estimated), (100, 5000, false));
        let some = measure(&roots, &dir, MeasureLimits { stats: 10, ..MeasureLimits::default() });
        assert_eq!((some.files, some.estimated), (100, true));
        // Directories are looked at like files, so the number of those that were is not exact.
        assert_eq!(some.bytes, 5000);
        let few = measure(&roots, &dir, MeasureLimits { entries: 10, ..MeasureLimits::default() });
        assert!(few.files <= 10 && few.estimated);
        assert_eq!((whole.whole, some.whole, few.whole), (true, true, false));
        let stopped =
            roots.measure(&dir, None, MeasureLimits::default(), || ControlFlow::Break(()));
        let stopped = stopped.unwrap();
        assert!(stopped.estimated && !stopped.whole);
    }
}

#[test]
fn a_count_without_what_cannot_be_read_is_not_whole() {
    std::thread::spawn(|| {
        heed_permissions();
        for strategy in STRATEGIES {
            let house = House::new();
            let (roots, dir) = house.admitted(strategy);
            let set = |mode| {
                fs::set_permissions(house.dir().join("0c"), PermissionsExt::from_mode(mode))
                    .unwrap();
            };
            set(0o300);
            assert!(!measure(&roots, &dir, MeasureLimits::default()).whole);
            set(0o700);
            assert!(measure(&roots, &dir, MeasureLimits::default()).whole);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn links_are_not_counted_and_not_followed() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        symlink(&house.outside, house.dir().join("link")).unwrap();
        fs::hard_link(house.dir().join("0c/f"), house.dir().join("again")).unwrap();
        let measured = measure(&roots, &dir, MeasureLimits::default());
        assert_eq!(
            (measured.files, measured.bytes),
            (3, 0),
            "removing one of two names frees nothing"
        );
    }
}

#[test]
fn the_newest_change_is_found_in_files_and_directories() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let touch = |below: &str, at: SystemTime| {
            let times = fs::FileTimes::new().set_modified(at);
            File::open(house.dir().join(below)).unwrap().set_times(times).unwrap();
        };
        ["0c/f", "0c", ""].iter().for_each(|below| touch(below, old));
        let newest = || measure(&roots, &dir, MeasureLimits::default()).newest;
        assert_eq!(newest(), Some(old));
        for (number, below) in (1..).zip(["0c/f", "0c", ""]) {
            let at = old + Duration::from_secs(number);
            touch(below, at);
            assert_eq!(newest(), Some(at), "{below:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_tombstones_name_is_read_back_and_no_other(
        record in any::<u64>(),
        index in 0_usize..1 << 40,
        other in "\\.shuffled-tombstone-[0-9a-fg-]{0,30}",
    ) {
        let tombstone = Tombstone::new(record, index);
        prop_assert_eq!(Tombstone::parse(tombstone.as_str()), Some(tombstone));
        if let Some(read) = Tombstone::parse(&other) {
            prop_assert_eq!(read.as_str(), other.as_str());
            prop_assert!(!read.as_str().contains('g'));
        }
        let longer = "x".to_owned() + &other;
        prop_assert!(Tombstone::parse(&longer).is_none());
    }
}
