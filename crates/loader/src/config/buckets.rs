//! Batches of buckets: what the loader's parameters make of the lengths of rows. Source: own.

use std::sync::Arc;

use super::{BucketConfig, LoaderConfig, PadRule};
use crate::{
    Error, ErrorKind, Result,
    batch::PadTo,
    order::{Buckets, Lengths, Stretch},
    targets::{TargetConfig, TargetForm, TokensRule},
    tasks::{AudioPlan, length_slack},
};

impl LoaderConfig {
    /// The buckets of rows with these seconds, as they are known; also sets what `audio` needs to know of
    /// them. `None` without batches by duration.
    ///
    /// # Errors
    /// As [`Buckets::new`].
    pub fn buckets(
        &self,
        (seconds, tokens): (Option<&[f32]>, Option<Arc<[u32]>>),
        audio: &mut AudioPlan,
    ) -> Result<Option<Arc<Buckets>>> {
        let (Some(object), Some(seconds), Some(whole)) = (&self.batching, seconds, self.whole()) else {
            return Ok(None);
        };
        let BucketConfig { budget, bins, token_bins, pad_to, .. } = object.buckets.clone();
        // A bad record, which is told of in its turn, counts as a usual one: others of its length replace it.
        let longest = whole.max_seconds as f32;
        let mut found: Vec<f32> = seconds.iter().copied().filter(|seconds| seconds.is_finite()).collect();
        let middle = found.len() / 2;
        let usual = match found.is_empty() {
            true => longest,
            false => *found.select_nth_unstable_by(middle, f32::total_cmp).1,
        };
        let known = |&seconds: &f32| if seconds.is_nan() { usual } else { seconds }.min(longest);
        let lengths = Lengths {
            seconds: seconds.iter().map(known).collect(),
            tokens: tokens.map(|all| (all, token_bins)),
        };
        let stretch = (audio.augment.slowest() != audio.augment.fastest()).then(|| {
            let range = [1.0 / audio.augment.fastest(), 1.0 / audio.augment.slowest()];
            let augment = audio.augment.clone();
            Stretch::new(move |bits| 1.0 / augment.speed(bits), range)
        });
        let buckets = Buckets::new(lengths, budget, bins, stretch)?;
        let most_seconds = buckets.most_seconds();
        let rate = f64::from(audio.features.sample_rate());
        let axis = audio.padded_axis();
        if axis.is_none() {
            let message = "batching puts clips of about the same length together, and n_frames= makes the features of all as long; \
                           leave one of them out, or give batch_size=";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let places = |seconds: f64| {
            let shape = audio.features.shape((seconds * rate).round() as usize);
            axis.map_or(0, |axis| shape[axis] as u64)
        };
        let multiple = if let PadRule::Multiple(n) = pad_to { n } else { 0 };
        // The frames of each row are rounded up, and a recording may be a little longer than is known.
        let slack = places(1.0 + length_slack(audio.features.sample_rate()) as f64 / rate) - places(1.0)
            + 2
            + multiple;
        let most_places = places(most_seconds) + u64::from(buckets.most_rows()) * slack;
        let pad_to = match pad_to {
            PadRule::Longest => PadTo::Longest,
            PadRule::Multiple(n) => PadTo::Multiple(n),
            PadRule::Packed => PadTo::Packed,
            PadRule::Bucket => PadTo::Bounds {
                bounds: buckets.bins().iter().map(|&bound| places(bound)).collect(),
                most_in_batch: places(most_seconds),
                // Frames are rounded up.
                slack: 1,
            },
        };
        let longest = buckets.bins().last().copied().unwrap_or_default() * rate;
        (audio.padding.most_places, audio.padding.to) = (Some(most_places), pad_to);
        audio.padding.longest = Some(audio.clip_samples.min(longest.ceil() as usize + 1));
        audio.padding.most_tokens = self
            .counted_target()?
            .zip(budget.max_tokens)
            .map(|((target, _), most)| (target.name.clone(), most));
        Ok(Some(Arc::new(buckets)))
    }

    /// The problem with a target that bounds the tokens for a second of audio.
    pub(super) fn rate_problem(&self) -> Option<String> {
        let bounded = |target: &TargetConfig| {
            let TargetForm::Tokens(rule) = &target.form else { return None };
            rule.most_per_second.map(|most| (most, rule.is_random()))
        };
        let (most, is_random) = self.targets.iter().flatten().find_map(bounded)?;
        if is_random {
            return Some(format!(
                "max_per_second is {most:?}, and dropout changes the number of tokens; leave one of them out"
            ));
        }
        self.whole().is_none().then(|| {
            format!(
                "max_per_second is {most:?}, and clips have one length; give crop=Whole(), or leave it out"
            )
        })
    }

    /// The target whose tokens bound batches, if they do.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is not known which one that is, or if the number of its tokens is not.
    pub fn counted_target(&self) -> Result<Option<(&TargetConfig, &TokensRule)>> {
        let Some(BucketConfig { budget, tokens, .. }) = self.batching.as_ref().map(|object| &object.buckets)
        else {
            return Ok(None);
        };
        let Some(max_tokens) = budget.max_tokens else { return Ok(None) };
        let mut found = self.targets.iter().flatten().filter_map(|target| match &target.form {
            TargetForm::Tokens(rule) if tokens.as_ref().is_none_or(|name| *name == target.name) => {
                Some((target, rule))
            }
            _ => None,
        });
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        match (found.next(), found.next(), tokens) {
            (Some((_, rule)), None, _) if rule.is_random() => refused(format!(
                "max_tokens is {max_tokens}, and dropout changes the number of tokens; leave one of them out"
            )),
            (Some(found), None, _) => Ok(Some(found)),
            (Some(_), Some(_), _) => refused(format!(
                "max_tokens is {max_tokens}, and several targets have tokens; give Buckets(tokens=), the name of one"
            )),
            (None, _, Some(name)) => {
                refused(format!("tokens is {name:?}, and no target of this name is a Tokens or a Characters"))
            }
            (None, ..) => refused(format!(
                "max_tokens is {max_tokens}, and no target has tokens; give targets={{\"tokens\": Tokens(...)}}"
            )),
        }
    }

    /// Whether examples of a batch lie one after the other.
    pub fn packs(&self) -> bool {
        self.batching.as_ref().is_some_and(|object| object.buckets.pad_to == PadRule::Packed)
    }
}
