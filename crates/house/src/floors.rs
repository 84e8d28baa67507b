// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrows that run back up: from a room to one on a higher floor, or beside it.

use std::collections::BTreeMap;

use crate::arrow::{Arrow, Arrows};
use crate::workspace::Floors;

/// The files of a crate or directory, each with its name in it: `["schema", "key"]`. The empty name is
/// the root module, which stands above all floors.
pub type Names = BTreeMap<String, Vec<String>>;

#[derive(Debug, PartialEq, Eq)]
pub struct Up {
    pub arrow: Arrow,
    pub from_room: String,
    pub to_room: String,
}

/// Arrows up, and what stands on no floor, a line each.
#[derive(Debug, Default)]
pub struct Order {
    pub up: Vec<Up>,
    pub misplaced: Vec<String>,
}

pub fn order(arrows: &Arrows, names: &Names, floors: &Floors, place: &str) -> Order {
    let mut found = Order::default();
    let rooms: Vec<(usize, &String)> = floors
        .iter()
        .enumerate()
        .flat_map(|(i, floor)| floor.iter().map(move |r| (i, r)))
        .collect();
    let top = "the root".to_string();
    let mut of_file = BTreeMap::new();
    for (file, name) in names {
        let name = name.join("::");
        let is_in = |room: &str| name == *room || name.starts_with(&format!("{room}::"));
        let best = rooms.iter().filter(|(_, room)| is_in(room)).max_by_key(|(_, room)| room.len());
        let (floor, room) = match best {
            Some(&best) => best,
            None if name.is_empty() => (floors.len(), &top),
            None => {
                let text = format!("{file} is in no room: add `{name}` to the floors of {place}");
                found.misplaced.push(text);
                continue;
            }
        };
        of_file.insert(file.clone(), (floor, room));
    }
    for (_, room) in &rooms {
        if !of_file.values().any(|(_, r)| r == room) {
            let text = format!("the floors of {place} name `{room}`, which has no file");
            found.misplaced.push(text);
        }
    }
    for arrow in arrows.iter() {
        let (Some(&from), Some(&to)) = (of_file.get(&arrow.from), of_file.get(&arrow.to)) else {
            continue;
        };
        if to.0 > from.0 || to.0 == from.0 && to.1 != from.1 {
            let (from_room, to_room) = (from.1.clone(), to.1.clone());
            found.up.push(Up { arrow: arrow.clone(), from_room, to_room });
        }
    }
    found
}
