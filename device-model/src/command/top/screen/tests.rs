//! The screen, drawn to a terminal that is memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

use super::*;

fn load(vm: &str, vcpu: Option<u64>, share: Option<u64>, exits: u64) -> Load {
    Load {
        vcpu,
        vm: vm.into(),
        share_percent: share.map(|share| Percent::of(share, 1000)),
        wait_percent: share.map(|share| Percent::of(1000 - share, 2000)),
        steal_percent: share.map(|_| Percent::of(1, 1000)),
        preemptions: share.map(|_| 7),
        exits,
    }
}

/// A screen after a number of seconds, in which `linux` had more of the CPU each time.
fn after(seconds: u64) -> Screen {
    let mut screen = Screen::new(false);
    for second in 1..=seconds {
        let vms = vec![
            load("device", None, Some(100), 50),
            load("linux", None, Some(second * 100), 20),
            load("rt", None, None, 90),
        ];
        let vcpus = vec![
            load("device", Some(0), Some(100), 50),
            load("linux", Some(1), Some(10), 10),
            load("linux", Some(2), Some(second * 100 - 10), 10),
            load("rt", Some(3), None, 90),
        ];
        screen.take(vms, vcpus);
    }
    screen
}

/// Draws to a terminal of this size; returns its lines, and which of them are reversed.
fn drawn(screen: &Screen, width: u16, height: u16) -> (Vec<String>, Vec<usize>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let symbols = (0..width).map(|x| buffer[(x, y)].symbol());
        symbols.collect::<String>().trim_end().to_owned()
    };
    let is_reversed = |y: &usize| {
        let style = buffer[(0, *y as u16)].modifier;
        style.contains(Modifier::REVERSED)
    };
    let reversed = (0..height.into()).filter(is_reversed).collect();
    ((0..height).map(line).collect(), reversed)
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn press(screen: &mut Screen, keys: &str) {
    for c in keys.chars() {
        assert_eq!(screen.press(key(KeyCode::Char(c))), Effect::Stays);
    }
}

/// Returns the names of the rows in the table.
fn order(screen: &Screen) -> Vec<String> {
    let (lines, _) = drawn(screen, 80, 10);
    let rows = lines.iter().skip(2).take(4);
    let words = rows.filter_map(|line| line.split_whitespace().next());
    words.map(str::to_owned).collect()
}

#[test]
fn vms_are_a_table_with_the_history_of_the_chosen_one() {
    let mut screen = after(8);
    screen.press(key(KeyCode::Down));
    let (lines, reversed) = drawn(&screen, 80, 16);
    let expected = [
        "gearctl top  3 VMs by number, 8 s",
        "VM                   SHARE     WAIT      STEAL     PREEMPTIONS EXITS",
        "device                 10.0 %    45.0 %     0.1 %            7         50",
        "linux                  80.0 %    10.0 %     0.1 %            7         20",
        "rt                    own CPU         -         -            -         90",
    ];
    assert_eq!(lines[..5], expected, "{lines:#?}");
    assert_eq!(reversed, [3]);
    assert!(
        lines[9].starts_with("┌ linux: share, to 100 %, 8 s ─"),
        "{lines:#?}"
    );
    // Eight seconds, each a tenth higher, at the right end.
    let bars: Vec<usize> = (10..14)
        .map(|line| {
            lines[line]
                .chars()
                .filter(|c| ('▁'..='█').contains(c))
                .count()
        })
        .collect();
    assert_eq!(bars, [1, 3, 6, 8], "{lines:#?}");
    assert!(lines[13].ends_with("█│"), "{lines:#?}");
    assert_eq!(lines[15], KEYS);
}

#[test]
fn keys_change_what_is_shown() {
    let mut screen = after(5);
    assert_eq!(order(&screen), ["device", "linux", "rt"]);
    press(&mut screen, "s");
    assert_eq!(order(&screen), ["linux", "device", "rt"]);
    press(&mut screen, "s");
    assert_eq!(order(&screen), ["device", "linux", "rt"]);
    press(&mut screen, "s");
    assert_eq!(order(&screen), ["rt", "device", "linux"]);
    press(&mut screen, "sv");
    assert_eq!(order(&screen), ["0", "1", "2", "3"]);
    let (lines, _) = drawn(&screen, 80, 16);
    assert_eq!(lines[0], "gearctl top  4 vCPUs by number, 5 s");
    assert!(lines[1].starts_with("VCPU  VM "), "{lines:?}");
    assert!(lines[9].contains(" vCPU 0 of device: share"), "{lines:?}");
    for quits in [key(KeyCode::Char('q')), key(KeyCode::Esc)] {
        assert_eq!(screen.press(quits), Effect::Quits);
    }
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.press(control), Effect::Quits);
    press(&mut screen, "cxyz");
}

/// The chosen row is a VM, wherever it moves, and not a place.
#[test]
fn a_row_stays_chosen_when_it_moves() {
    let mut screen = after(5);
    press(&mut screen, "j");
    let chosen = |screen: &Screen| drawn(screen, 80, 16).1;
    assert_eq!(chosen(&screen), [3]);
    press(&mut screen, "s");
    assert_eq!(chosen(&screen), [2]);
    // Neither end is passed.
    press(&mut screen, "kkk");
    assert_eq!(chosen(&screen), [2]);
    press(&mut screen, "jjjjj");
    assert_eq!(chosen(&screen), [4]);
    // Nobody counts the time of a real-time VM, whose exits are shown instead.
    let (lines, _) = drawn(&screen, 80, 16);
    assert!(
        lines[9].starts_with("┌ rt: exits, to 90, 5 s ─"),
        "{lines:?}"
    );
}

#[test]
fn a_frozen_screen_stays_and_its_history_goes_on() {
    let mut screen = after(2);
    press(&mut screen, " j");
    screen.take(vec![load("linux", None, Some(990), 1)], Vec::new());
    let (lines, _) = drawn(&screen, 80, 16);
    assert_eq!(lines[0], "gearctl top  3 VMs by number, 3 s, frozen");
    assert!(lines[3].contains(" 20.0 %"), "{lines:?}");
    assert!(lines[9].contains("3 s"), "{lines:?}");
    press(&mut screen, "r");
    assert!(drawn(&screen, 80, 16).0[9].contains("0 s"));
}

#[test]
fn trouble_is_said_until_figures_come_again() {
    let mut screen = after(1);
    screen.complain("gdm closed the connection");
    let (lines, reversed) = drawn(&screen, 80, 16);
    assert_eq!(lines[15], "gdm closed the connection");
    assert!(reversed.contains(&15));
    screen.take(Vec::new(), Vec::new());
    let (lines, _) = drawn(&screen, 80, 16);
    assert_eq!(lines[15], KEYS);
}

/// Any size of a terminal has what fits, and a history is of bounded length.
#[test]
fn terminals_are_of_any_size() {
    let mut screen = after(9);
    for _ in 0..2 * KEPT {
        screen.take(
            vec![load("linux", None, Some(2500).map(|_| 500), 3)],
            Vec::new(),
        );
    }
    assert!(screen.histories.values().all(|one| one.share.len() <= KEPT));
    for width in [1, 2, 3, 20, 79, 300] {
        for height in 1..30 {
            drawn(&screen, width, height);
        }
    }
    let empty = Screen::new(true);
    drawn(&empty, 80, 24);
    let (lines, _) = drawn(&screen, 80, 13);
    assert!(!lines.iter().any(|line| line.starts_with('┌')), "{lines:?}");
}
