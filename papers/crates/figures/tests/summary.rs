// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts follow from rows, wrong rows are noticed, nothing is skipped.

use std::path::{Path, PathBuf};
use unspin_figures::{
    experiments, make, page, select, Claim, Claims, Ctx, Entry, Error, Kind, Reasons, Summary,
    PAPERS,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn claims() -> Claims {
    Claims::read(&root()).unwrap()
}

fn asked(claims: &Claims) -> Vec<String> {
    claims.all.iter().filter(|c| c.kind != Kind::Define).map(|c| c.id.clone()).collect()
}

/// All entries with made-up values: those of every second one are the paper's, where they are
/// numbers.
fn made_up(claims: &Claims) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (i, claim) in claims.all.iter().enumerate() {
        let mut e = Entry::new(claim, 1);
        for name in claim.names() {
            match claim.get(&name) {
                Some(v) if v.is_f64() => e.ratio(&name, v.as_f64().unwrap() + (9 * (i % 2)) as f64),
                _ => e.holds(&name, i % 2 == 0, ""),
            }
        }
        entries.push(e);
    }
    entries
}

#[test]
fn every_claim_is_counted_and_every_experiment_has_a_claim() {
    let claims = claims();
    assert_eq!(claims.all.len(), 74);
    let predicted = claims.all.iter().filter(|c| c.kind == Kind::Predict).count();
    let ids: Vec<&str> = experiments().map(|e| e.id).collect();
    for (i, id) in ids.iter().enumerate() {
        assert!(claims.all.iter().any(|c| c.id == *id), "{id} is no entry");
        assert!(!ids[..i].contains(id), "{id} has two experiments");
    }
    for claim in claims.all.iter().filter(|c| c.kind != Kind::Define) {
        assert!(ids.contains(&claim.id.as_str()), "{}: nothing makes it again", claim.id);
    }
    // An entry that cannot be reproduced is listed, and is not within.
    let ctx = Ctx::new(&root(), Some(1), |_| {});
    let predicted_claim = claims.all.iter().find(|c| c.kind == Kind::Predict).unwrap();
    let unknown = Claim { id: "apples_nobody".into(), ..predicted_claim.clone() };
    let entry = make(&ctx, &unknown).unwrap();
    assert!(!entry.rows.is_empty() && !entry.within() && !entry.reproduced);
    let summary = Summary::new(&made_up(&claims), "1", &asked(&claims), None);
    assert_eq!(summary.predicted as usize, predicted);
    summary.check().unwrap();
}

#[test]
fn a_wrong_row_or_count_is_noticed() {
    let claims = claims();
    let good = Summary::new(&made_up(&claims), "1", &asked(&claims), None);
    assert!(good.within > 0 && good.within < good.predicted);
    let wrong = |change: fn(&mut Summary), why: &str| {
        let mut summary = good.clone();
        change(&mut summary);
        let said = summary.check().expect_err(why);
        assert!(said.contains(why), "{said}");
    };
    wrong(|s| s.within += 1, "the rows give");
    wrong(|s| s.predicted -= 1, "the rows give");
    wrong(|s| s.rows[0].within = !s.rows[0].within, "not what its values say");
    wrong(|s| s.rows[0].direction_right = !s.rows[0].direction_right, "not what its values say");
    wrong(|s| s.rows[0].kind = Kind::Predict, "another kind");
    wrong(|s| s.entries[3].within = !s.entries[3].within, "not what its rows say");
    wrong(|s| drop(s.entries.remove(0)), "not listed");
    wrong(
        |s| {
            let id = s.rows[0].entry.clone();
            s.rows.retain(|r| r.entry != id);
        },
        "no values",
    );
}

#[test]
fn a_summary_survives_its_file() {
    let claims = claims();
    let summary = Summary::new(&made_up(&claims), "1", &asked(&claims), None);
    let text = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
}

#[test]
fn shards_merged_are_the_whole() {
    let claims = claims();
    let (entries, asked) = (made_up(&claims), asked(&claims));
    let whole = Summary::new(&entries, "1", &asked, None);
    let mut shards: Vec<Vec<Entry>> = (0..3).map(|_| Vec::new()).collect();
    for (i, e) in entries.into_iter().enumerate() {
        shards[i % 3].push(e);
    }
    let shards: Vec<Summary> = (shards.iter().enumerate())
        .map(|(i, s)| Summary::new(s, "1", &asked, Some(format!("{}/3", i + 1))))
        .collect();
    let turned = [shards[2].clone(), shards[0].clone(), shards[1].clone()];
    assert_eq!(Summary::merge(&turned).unwrap(), whole);
    assert!(Summary::merge(&shards[..2]).unwrap_err().contains("one is missing"));
    let twice = [&shards[..], &shards[..1]].concat();
    assert!(Summary::merge(&twice).unwrap_err().contains("in two shards"));
    let mut other = shards.clone();
    other[1].version = "2".to_string();
    assert!(Summary::merge(&other).unwrap_err().contains("different versions"));
}

#[test]
fn an_unknown_id_is_said() {
    let claims = claims();
    assert_eq!(select(&claims, &[]).unwrap().len(), claims.all.len());
    let one = select(&claims, &["apples_fig6_ebizzy".to_string()]).unwrap();
    assert_eq!(one.len(), 1);
    match select(&claims, &["apples_fig6".to_string()]) {
        Err(e @ Error::Unknown { .. }) => {
            let said = e.to_string();
            assert!(said.contains("did you mean \"apples_fig6_ebizzy\"?"), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_page_has_every_value_and_reasons_are_for_what_there_is() {
    let claims = claims();
    let reasons = Reasons::read(&root(), &claims).unwrap();
    let summary = Summary::new(&made_up(&claims), "1", &asked(&claims), None);
    let text = page(&claims, &summary, &reasons);
    for row in &summary.rows {
        assert!(text.contains(&row.entry) && text.contains(&format!("| {} |", row.name)));
    }
    for c in &claims.all {
        assert!(text.contains(&c.id), "{}", c.id);
    }
}

#[test]
fn a_reason_for_what_the_paper_does_not_say_is_refused() {
    let claims = claims();
    for (text, why) in [
        ("nosuch = 'x'", "which is no claim of apples"),
        ("asman_fig10_specjbb = 'x'", "which is no claim of apples"),
        ("\"apples_fig6_ebizzy nosuch\" = 'x'", "apples_fig6_ebizzy has"),
        ("apples_fig6_ebizzy = 1", "expected a string"),
    ] {
        let dir = papers("refused", text);
        let said = Reasons::read(&dir, &claims).unwrap_err().to_string();
        assert!(said.contains(why) && said.contains("papers/apples/reasons.toml"), "{said}");
    }
}

#[test]
fn every_paper_has_its_directory() {
    let dirs = std::fs::read_dir(root().join("papers")).unwrap().map(|d| d.unwrap());
    let dirs = dirs.filter(|d| d.path().is_dir()).map(|d| d.file_name().into_string().unwrap());
    let is_paper = |name: &String| !matches!(name.as_str(), "beyond" | "crates");
    let mut dirs: Vec<String> = dirs.filter(is_paper).collect();
    let mut keys: Vec<&str> = PAPERS.iter().map(|paper| paper.key).collect();
    dirs.sort();
    keys.sort_unstable();
    assert_eq!(dirs, keys);
    for paper in PAPERS {
        for e in paper.experiments.iter().copied().flatten() {
            assert!(e.id.starts_with(&format!("{}_", paper.key)), "{} of {}", e.id, paper.key);
        }
    }
}

/// A directory whose papers have no reasons but these, of APPLES.
fn papers(name: &str, of_apples: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    for paper in PAPERS {
        let dir = root.join("papers").join(paper.key);
        std::fs::create_dir_all(&dir).unwrap();
        let text = if paper.key == "apples" { of_apples } else { "" };
        std::fs::write(dir.join("reasons.toml"), text).unwrap();
    }
    root
}

#[test]
fn a_reason_that_explains_no_miss_is_named() {
    let claims = claims();
    let text = "apples_fig5_overall = \"a\"\n\"apples_fig6_ebizzy hvs\" = \"b\"\n";
    let reasons = Reasons::read(&papers("idle", text), &claims).unwrap();
    let mut summary = Summary::new(&made_up(&claims), "1", &asked(&claims), None);
    let of = |s: &mut Summary, miss: &dyn Fn(&unspin_figures::Row) -> bool| {
        for row in &mut s.rows {
            let right = !miss(row);
            (row.within, row.direction_right) = (right, right);
        }
        reasons.idle(s).into_iter().map(str::to_string).collect::<Vec<_>>()
    };
    let nothing: [&str; 0] = [];
    assert_eq!(of(&mut summary, &|_| true), nothing);
    assert_eq!(of(&mut summary, &|r| r.entry == "apples_fig5_overall"), ["apples_fig6_ebizzy hvs"]);
    assert_eq!(of(&mut summary, &|r| r.name == "hvs"), ["apples_fig5_overall"]);
    // Entries that were not reproduced have no result.
    summary.entries.retain(|e| e.id != "apples_fig5_overall");
    assert_eq!(of(&mut summary, &|r| r.name == "hvs"), nothing);
}
