//! Merges runs into one: the shards of a run, or runs of different cases.

use std::collections::BTreeMap;

use crate::event::RunRecord;
use crate::gather::gather;
use crate::promises::{PromiseRecord, Standing};

/// One record of all cases. The head is that of the first run. A promise is broken if it is broken in one run, and
/// kept if it is kept in one and broken in none.
pub fn merge(records: impl IntoIterator<Item = RunRecord>) -> Option<RunRecord> {
    let mut records = records.into_iter();
    let mut whole = records.next()?;
    for mut record in records {
        whole.header.cases += record.header.cases;
        whole.cases.append(&mut record.cases);
        whole.promises = promises(whole.promises, record.promises);
        whole.kernel.append(&mut record.kernel);
        whole.hints.append(&mut record.hints);
        whole.seconds += record.seconds;
        whole.interrupted |= record.interrupted;
        whole.exit_code = whole.exit_code.max(record.exit_code);
    }
    whole.hints.dedup();
    whole.findings = gather(&whole.cases);
    Some(whole)
}

fn promises(first: Vec<PromiseRecord>, second: Vec<PromiseRecord>) -> Vec<PromiseRecord> {
    let mut others: BTreeMap<String, PromiseRecord> =
        second.into_iter().map(|record| (record.id.clone(), record)).collect();
    let joined = first.into_iter().map(|record| match others.remove(&record.id) {
        Some(other) => joined(record, other),
        None => record,
    });
    let mut all: Vec<PromiseRecord> = joined.collect();
    all.extend(others.into_values());
    all
}

fn joined(first: PromiseRecord, second: PromiseRecord) -> PromiseRecord {
    let judged_in = first.judged_in + second.judged_in;
    // The order of standings is broken, kept, not tried, not observable: the smaller one wins.
    let (stronger, _) = if first.standing <= second.standing { (first, second) } else { (second, first) };
    let lacks = if stronger.standing == Standing::NotObservable { stronger.lacks } else { vec![] };
    PromiseRecord { judged_in, lacks, ..stronger }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CaseReport, Status};
    use crate::finding::Party;
    use crate::judge;

    fn promise(standing: Standing, judged_in: usize) -> PromiseRecord {
        PromiseRecord {
            id: "DRV-055".into(),
            binds: Party::Driver,
            strength: None,
            sentence: "s".into(),
            standing,
            judged_in,
            lacks: vec![],
        }
    }

    fn run(case: CaseReport, standing: Standing) -> RunRecord {
        let exit_code = u8::from(case.status.is_bad());
        RunRecord {
            cases: vec![case],
            promises: vec![promise(standing, 1)],
            exit_code,
            ..RunRecord::default()
        }
    }

    #[test]
    fn finding_of_two_parts_is_one_and_broken_outweighs_kept() {
        let finding = || judge::promise_broken("DRV-055", "NodePublishVolume", "x");
        let failed = |id: &str| CaseReport::sample(id, Status::Failed).with_findings([finding()]);
        let whole = merge([
            run(CaseReport::sample("a", Status::Passed), Standing::Kept),
            run(failed("b"), Standing::Broken),
            run(failed("c"), Standing::NotTried),
        ])
        .unwrap();
        assert_eq!((whole.cases.len(), whole.exit_code, whole.findings.len()), (3, 1, 1));
        assert_eq!((whole.promises[0].standing, whole.promises[0].judged_in), (Standing::Broken, 3));
        assert_eq!(merge([]), None);
    }
}
