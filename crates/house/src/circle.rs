// SPDX-License-Identifier: MIT OR Apache-2.0
//! Circles: files of which each can be reached from each other along arrows.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use crate::arrow::{Arrow, Arrows};

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circle {
    pub files: BTreeSet<String>,
    pub arrows: Vec<Arrow>,
}

/// Every strongly connected component of more than one node. `node_of` says which files count as one.
pub fn circles(arrows: &Arrows, node_of: impl Fn(&str) -> String) -> Vec<Circle> {
    let mut graph = DiGraph::<String, ()>::new();
    let mut index = BTreeMap::new();
    for arrow in arrows.iter() {
        let [from, to] = [&arrow.from, &arrow.to].map(|file| {
            let node = node_of(file);
            *index.entry(node.clone()).or_insert_with(|| graph.add_node(node))
        });
        graph.update_edge(from, to, ());
    }
    let mut found: Vec<Circle> = tarjan_scc(&graph)
        .into_iter()
        .filter(|component| component.len() > 1)
        .map(|component| {
            let nodes: BTreeSet<&String> = component.iter().map(|&i| &graph[i]).collect();
            let inside = |a: &&Arrow| {
                let (from, to) = (node_of(&a.from), node_of(&a.to));
                from != to && nodes.contains(&from) && nodes.contains(&to)
            };
            let arrows: Vec<Arrow> = arrows.iter().filter(inside).cloned().collect();
            let files = arrows.iter().flat_map(|a| [a.from.clone(), a.to.clone()]).collect();
            Circle { files, arrows }
        })
        .collect();
    found.sort();
    found
}
