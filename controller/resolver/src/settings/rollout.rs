//! When changes are applied, and in which stages.

use sesame_proto::digest::LISTENERS_DIGITS;
use sesame_proto::rollout::{Command, MAX_HOSTS, MAX_STAGES};
use sesame_proto::schema::{MaintenanceWindow as Window, Rollout, RolloutStage as Stage};

use super::check::milliseconds;
use super::clients::unknown;
use super::edge::excerpt;
use crate::syntax::limits;
use sesame_kinds::api::{
    MaintenanceWindow, OpenEnum, RolloutFailure, RolloutSettings, RolloutStage, Weekday,
};

/// Annotation of a Gateway with the digest of an approved change.
pub(super) const APPROVAL: &str = "projectsesame.io/approve-draining";
/// Annotation of a Gateway with a command for its rollout.
pub(super) const COMMAND: &str = "projectsesame.io/rollout";
const DEFAULT_BAKE_MS: u64 = 10 * 60 * 1000;
const MAX_BAKE_MS: u64 = 168 * 3600 * 1000;
const MAX_ZONE: usize = 253;
/// As in the schema.
const MAX_WINDOWS: usize = 16;
const DAY: u32 = 24 * 60;

/// Returns `None` if all values are defaults. Validation has already rejected invalid settings.
pub(super) fn of(settings: &RolloutSettings) -> Option<Rollout> {
    let RolloutSettings {
        hold_draining,
        approve_draining,
        windows,
        stages,
        on_failure,
        max_error_increase,
    } = settings;
    let hold_draining = *hold_draining == Some(true);
    let stages = stages.iter().flatten().map(stage_of);
    let stages: Vec<Stage> = stages.filter_map(Result::ok).collect();
    let is_staged = !stages.is_empty();
    let windows = windows.iter().flatten().map(windows_of);
    let mut windows: Vec<Window> = windows.filter_map(Result::ok).flatten().collect();
    windows.sort_by_key(|it| (it.start, it.minutes));
    windows.dedup();
    (hold_draining || is_staged).then(|| Rollout {
        hold_draining,
        approved: approve_draining.clone().unwrap_or_default(),
        windows,
        stages,
        return_on_failure: is_staged && *on_failure == Some(RolloutFailure::Return),
        command: String::new(),
        max_error_increase: max_error_increase.filter(|_| is_staged),
    })
}

/// Each error starts with the name of the field in `spec.rollout`.
pub(super) fn faults(settings: &RolloutSettings) -> Vec<String> {
    let RolloutSettings {
        hold_draining: _,
        approve_draining,
        windows,
        stages,
        on_failure,
        max_error_increase,
    } = settings;
    let mut faults = Vec::new();
    if let Some(Err(why)) = approve_draining.as_deref().map(check_approval) {
        faults.push(format!("approveDraining: {why}"));
    }
    let windows = windows.as_deref().unwrap_or_default();
    faults.extend(limits::entries("windows", windows.len(), 0..=MAX_WINDOWS).err());
    for (i, window) in windows.iter().take(MAX_WINDOWS).enumerate() {
        let wrong = windows_of(window).err();
        faults.extend(wrong.map(|why| format!("windows[{i}].{why}")));
    }
    let stages = stages.as_deref().unwrap_or_default();
    faults.extend(limits::entries("stages", stages.len(), 0..=MAX_STAGES).err());
    for (i, stage) in stages.iter().take(MAX_STAGES).enumerate() {
        let wrong = stage_of(stage).err();
        faults.extend(wrong.map(|why| format!("stages[{i}]{why}")));
    }
    let wrong = on_failure.as_ref().and_then(OpenEnum::unknown);
    faults.extend(wrong.map(|(value, words)| unknown("onFailure", value, words)));
    if let Some(points) = max_error_increase.filter(|points| *points > 100) {
        faults.push(format!("maxErrorIncrease: {points}: expected 0 to 100"));
    }
    faults
}

pub(super) fn check_command(command: &str) -> Result<(), String> {
    if Command::parse(command).is_some() {
        return Ok(());
    }
    let command = excerpt(command);
    Err(format!(
        "{command:?}: expected pause/DIGEST, undo/DIGEST or resume/DIGEST/STAGE; use `kubectl \
        sesame rollout`"
    ))
}

fn stage_of(stage: &RolloutStage) -> Result<Stage, String> {
    let RolloutStage {
        hosts,
        percent,
        zone,
        bake,
        pause,
    } = stage;
    let count = [hosts.is_some(), percent.is_some(), zone.is_some()];
    if count.into_iter().filter(|is_set| *is_set).count() != 1 {
        return Err(": expected either hosts, percent or zone".to_owned());
    }
    let most = u32::try_from(MAX_HOSTS).unwrap_or(u32::MAX);
    for (field, number, most) in [("hosts", hosts, most), ("percent", percent, 100)] {
        if let Some(number) = number.filter(|number| !(1..=most).contains(number)) {
            return Err(format!(".{field}: {number}: expected 1 to {most}"));
        }
    }
    let zone = zone.clone().unwrap_or_default();
    if stage.zone.is_some() && !(1..=MAX_ZONE).contains(&zone.len()) {
        return Err(format!(
            ".zone: {:?}: expected 1 to {MAX_ZONE} bytes",
            excerpt(&zone)
        ));
    }
    let bake = match bake {
        None => DEFAULT_BAKE_MS,
        Some(text) => milliseconds(text)
            .filter(|bake| *bake <= MAX_BAKE_MS)
            .ok_or_else(|| format!(".bake: {:?}: expected 0s to 168h", excerpt(text)))?,
    };
    Ok(Stage {
        hosts: hosts.unwrap_or_default(),
        percent: percent.unwrap_or_default(),
        zone,
        bake_seconds: u32::try_from(bake.div_ceil(1000)).unwrap_or(u32::MAX),
        pause: *pause == Some(true),
    })
}

pub(super) fn check_approval(digest: &str) -> Result<(), String> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digest.len() == LISTENERS_DIGITS && digest.bytes().all(is_hex) {
        return Ok(());
    }
    let digest = excerpt(digest);
    Err(format!(
        "{digest:?}: expected the {LISTENERS_DIGITS} digits that the status of a host shows"
    ))
}

/// Returns a window for each day.
fn windows_of(window: &MaintenanceWindow) -> Result<Vec<Window>, String> {
    let MaintenanceWindow { days, start, end } = window;
    let start = minute(start).map_err(|why| format!("start: {why}"))?;
    let end = minute(end).map_err(|why| format!("end: {why}"))?;
    let minutes = if end > start {
        end - start
    } else {
        end + DAY - start
    };
    let days: Vec<Result<u32, String>> = match days {
        None => (0..7).map(Ok).collect(),
        Some(days) => {
            limits::entries("days", days.len(), 1..=7)?;
            let days = days.iter().enumerate();
            days.map(|(i, day)| number(day).map_err(|why| format!("days[{i}]{why}")))
                .collect()
        }
    };
    days.into_iter()
        .map(|day| {
            Ok(Window {
                start: day? * DAY + start,
                minutes,
            })
        })
        .collect()
}

/// Monday is 0.
fn number(day: &Weekday) -> Result<u32, String> {
    let days = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];
    let place = days.iter().position(|it| it == day);
    let place = place.and_then(|it| u32::try_from(it).ok());
    place.ok_or_else(|| {
        let (value, words) = day.unknown().unwrap_or_default();
        unknown("", value, words)
    })
}

fn minute(text: &str) -> Result<u32, String> {
    let wrong = || format!("{:?}: expected a time such as 02:00", excerpt(text));
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let read = |digits: &str, most: u32| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|it| it.is_ascii_digit());
        let number = digits.parse::<u32>().ok().filter(|it| *it <= most);
        number.filter(|_| is_plain).ok_or_else(wrong)
    };
    Ok(read(hours, 23)? * 60 + read(minutes, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: Option<&[&str]>, start: &str, end: &str) -> MaintenanceWindow {
        MaintenanceWindow {
            days: days.map(|days| days.iter().map(|&day| day.into()).collect()),
            start: start.to_owned(),
            end: end.to_owned(),
        }
    }

    fn with(windows: &[MaintenanceWindow]) -> RolloutSettings {
        RolloutSettings {
            hold_draining: Some(true),
            approve_draining: None,
            windows: Some(windows.to_vec()),
            ..RolloutSettings::default()
        }
    }

    #[test]
    fn stages_have_one_selector_and_bake_time() {
        let stage = |change: fn(&mut RolloutStage)| {
            let mut stage = RolloutStage::default();
            change(&mut stage);
            stage
        };
        let settings = RolloutSettings {
            stages: Some(vec![
                stage(|it| it.hosts = Some(1)),
                stage(|it| {
                    it.zone = Some("a".to_owned());
                    it.bake = Some("1m30s".to_owned());
                    it.pause = Some(true);
                }),
            ]),
            on_failure: Some(RolloutFailure::Return),
            ..RolloutSettings::default()
        };
        assert_eq!(faults(&settings), Vec::<String>::new());
        let rollout = of(&settings).expect("a rollout");
        assert!(!rollout.hold_draining && rollout.return_on_failure);
        let [first, second] = rollout.stages.as_slice() else {
            panic!("{rollout:?}");
        };
        assert_eq!((first.hosts, first.bake_seconds), (1, 600));
        assert_eq!((second.bake_seconds, second.pause), (90, true));
        for (change, expected) in [
            (
                (|_| {}) as fn(&mut RolloutStage),
                "stages[0]: expected either",
            ),
            (|it| it.hosts = Some(0), "stages[0].hosts: 0: expected 1 to"),
            (
                |it| (it.hosts, it.percent) = (Some(1), Some(1)),
                "stages[0]: expected either",
            ),
            (|it| it.percent = Some(101), "stages[0].percent: 101"),
            (
                |it| (it.hosts, it.bake) = (Some(1), Some("169h".to_owned())),
                "stages[0].bake: \"169h\": expected 0s to 168h",
            ),
        ] {
            let wrong = RolloutSettings {
                stages: Some(vec![stage(change)]),
                ..RolloutSettings::default()
            };
            let found = faults(&wrong).join("; ");
            assert!(found.starts_with(expected), "{expected}: {found}");
        }
        assert!(check_command("resume/0123456789abcdef/1").is_ok());
        assert!(check_command("resume").is_err());
    }

    #[test]
    fn windows_are_minutes_of_the_week() {
        let night = window(Some(&["Sunday", "Monday"]), "22:30", "01:00");
        let rollout = of(&with(&[night.clone(), night])).unwrap();
        let found: Vec<_> = rollout
            .windows
            .iter()
            .map(|it| (it.start, it.minutes))
            .collect();
        assert_eq!(found, [(22 * 60 + 30, 150), (6 * DAY + 22 * 60 + 30, 150)]);
        let daily = of(&with(&[window(None, "02:00", "02:00")])).unwrap();
        assert_eq!(daily.windows.len(), 7);
        assert!(daily.windows.iter().all(|it| it.minutes == DAY));
        assert_eq!(of(&RolloutSettings::default()), None);
    }

    #[test]
    fn invalid_rollout_names_field_and_value() {
        for (window, expected) in [
            (window(None, "2:00", "04:00"), "windows[0].start: \"2:00\""),
            (window(None, "02:00", "24:00"), "windows[0].end: \"24:00\""),
            (window(None, "+2:00", "04:00"), "expected a time such as"),
            (
                window(Some(&["Mon"]), "02:00", "04:00"),
                "windows[0].days[0]: \"Mon\" is not one of",
            ),
            (
                window(Some(&[]), "02:00", "04:00"),
                "windows[0].days has 0 entries",
            ),
        ] {
            let found = faults(&with(&[window])).join("; ");
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let approved = RolloutSettings {
            approve_draining: Some("ABC".to_owned()),
            ..RolloutSettings::default()
        };
        let found = faults(&approved).join("; ");
        assert!(
            found.starts_with("approveDraining: \"ABC\": expected the 16 digits"),
            "{found}"
        );
        assert!(faults(&with(&vec![window(None, "02:00", "03:00"); 17]))[0].contains("17 entries"));
    }
}
