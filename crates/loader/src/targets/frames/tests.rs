//! Tests of labels on frames.

use super::*;
use proptest::prelude::*;

const RATE: f64 = 8000.0;

/// The second of the recording that is heard at each sample; NaN where nothing is.
fn heard(pieces: &[ClipPiece], n: usize) -> Vec<f64> {
    let mut found = vec![f64::NAN; n];
    for piece in pieces {
        for at in piece.at.clone() {
            assert!(found[at].is_nan(), "two pieces have sample {at}");
            found[at] = piece.start + (at - piece.at.start) as f64 * piece.speed / RATE;
        }
    }
    found
}

fn assert_near(found: &[f64], expected: &[f64]) {
    for (at, (one, other)) in found.iter().zip(expected).enumerate() {
        assert!((one - other).abs() < 1e-9 || one.is_nan() && other.is_nan(), "{at}: {one} and {other}");
    }
}

proptest! {
    /// Beside a walk over samples.
    #[test]
    fn pieces_move_as_samples_do(
        (start, len, behind) in (0_usize..50, 1_usize..200, 0_usize..50),
        rolls in prop::collection::vec((-300_i64..300, any::<bool>()), 0..4),
    ) {
        let (valid, n) = (start..start + len, start + len + behind);
        let mut pieces = vec![ClipPiece { at: valid.clone(), start: 3.0, speed: 0.5, part: 0 }];
        let mut want = heard(&pieces, n);
        for (shift, wraps) in rolls {
            roll_pieces(&mut pieces, &valid, (shift, wraps), RATE).unwrap();
            let before = want[valid.clone()].to_vec();
            for (at, value) in want[valid.clone()].iter_mut().enumerate() {
                let from = at as i64 - shift;
                let is_within = (0..len as i64).contains(&from);
                *value = if is_within || wraps { before[from.rem_euclid(len as i64) as usize] } else { f64::NAN };
            }
            assert_near(&heard(&pieces, n), &want);
        }
    }

    #[test]
    fn a_run_rolls_as_its_frames_do(
        (first, len, behind) in (0_usize..20, 1_usize..40, 0_usize..20),
        (start, run, shift) in (0_u32..60, 1_u32..60, 0_u32..40),
    ) {
        let (moved, n) = (first..first + len, first + len + behind);
        let (end, shift) = ((start + run).min(n as u32), shift % len as u32);
        let run = ValueRun { column: 1, start: start.min(end), end };
        let mut want: Vec<bool> = (0..n as u32).map(|at| (run.start..run.end).contains(&at)).collect();
        want[moved.clone()].rotate_right(shift as usize);
        let mut found = vec![false; n];
        for part in rolled_run(run, &moved, shift) {
            found[part.start as usize..part.end as usize].iter_mut().for_each(|frame| {
                assert!(!*frame, "a frame is in two runs");
                *frame = true;
            });
        }
        prop_assert_eq!(found, want);
    }
}

#[test]
fn a_short_recording_is_repeated() {
    let of = |n: usize, len: usize, from: usize| {
        let mut pieces = Vec::new();
        let piece = ClipPiece { at: 10..10 + n, start: 1.0, speed: 2.0, part: 3 };
        push_repeated(&mut pieces, piece, (len, from), RATE).unwrap();
        pieces
    };
    let found = heard(&of(250, 100, 30), 260);
    let want = |at: usize| if at < 10 { f64::NAN } else { 1.0 + ((at - 10 + 30) % 100) as f64 * 2.0 / RATE };
    assert_near(&found, &(0..260).map(want).collect::<Vec<_>>());
    assert_eq!((of(250, 100, 30).len(), of(50, 100, 0).len(), of(250, 0, 0).len()), (3, 1, 0));
    // 79 samples are below 10 ms, 80 are not.
    assert_eq!((of(8000, 80, 0).len(), of(8000, 79, 0).len()), (100, 1));
    let slow = &of(8000, 79, 5)[0];
    assert!((slow.speed * slow.at.len() as f64 - 2.0 * 79.0).abs() < 1e-9);
}

#[test]
fn the_events_of_a_clip_are_bounded() {
    let mut events = vec![0_u8; MOST_EVENTS - 1];
    push_event(&mut events, 0).unwrap();
    assert_eq!(push_event(&mut events, 0).unwrap_err().kind, ErrorKind::TooLarge);
}

#[test]
fn frames_lie_within_the_clip() {
    let n = |step, duration, seconds| {
        TimeGrid::new(TimeAxis::Frames { step, duration }, seconds).map_or(0, |grid| grid.places)
    };
    // pyannote's model has 589 frames of 10 s.
    assert_eq!(n(0.016875, 0.0619375, 10.0), 589);
    assert_eq!((n(0.01, 0.01, 5.0), n(0.02, 0.025, 1.0), n(0.1, 0.1, 0.3)), (500, 49, 3));
    assert_eq!((n(0.1, 0.2, 0.2), n(0.1, 0.2, 0.19), n(0.1, 0.2, 0.0)), (1, 0, 0));
    let values = TimeGrid::new(TimeAxis::Values { rate: 75.0 }, 0.99).unwrap();
    assert_eq!((values.places, values.first), (74, 0.5 / 75.0));
    assert_eq!(TimeGrid::new(TimeAxis::FeatureFrames, 1.0), None);
}
