//! Finds which pixels of two boundary maps correspond: a bipartite matching of maximum size and, among those, of
//! minimum distance.
//!
//! The benchmark solves an assignment problem with outlier nodes that cost a hundred times the tolerance, which has
//! the same solution. Its outliers are linked at random, so that its own counts vary by some tenths of a percent.
//!
//! Three steps keep it fast. The algorithm of Hopcroft and Karp (1973) finds a matching of maximum size. By the
//! decomposition of Dulmage and Mendelsohn (1958) only the detected pixels that alternating paths reach from an
//! unmatched one can be exchanged; all others are matched in every maximum matching. Only for these, shortest
//! augmenting paths minimise the distance. They start from the side that is matched completely, so that no search
//! fails.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::maps::Mask;
use crate::limits::EDGE_LINKS;

/// Marks a missing partner, node or pixel.
const NONE: u32 = u32::MAX;
/// Distances are compared in hundredths of a pixel, as the benchmark does.
const SCALE: f64 = 100.0;

/// A boundary map as a list of its pixels.
pub struct Points {
    width: usize,
    height: usize,
    /// The index of each set pixel.
    pixels: Vec<u32>,
    /// For each pixel of the image its index in `pixels`, or `NONE`.
    node: Vec<u32>,
}

impl Points {
    /// The pixels of `mask`.
    pub fn new(mask: &Mask) -> Self {
        let mut node = vec![NONE; mask.bits.len()];
        let mut pixels = Vec::new();
        for (i, _) in mask.bits.iter().enumerate().filter(|(_, bit)| **bit) {
            node[i] = pixels.len() as u32;
            pixels.push(i as u32);
        }
        Self { width: mask.width, height: mask.height, pixels, node }
    }

    /// The number of pixels.
    pub fn len(&self) -> usize {
        self.pixels.len()
    }

    /// Whether there are no pixels.
    pub fn is_empty(&self) -> bool {
        self.pixels.is_empty()
    }
}

/// Offsets to all pixels at most `radius` away, nearest first, each with its distance in hundredths of a pixel.
pub struct Disc(Vec<(i32, i32, i32)>);

impl Disc {
    /// A disc of `radius` pixels, as far as two pixels of an image of this size can be apart: that of a long line would take
    /// gigabytes.
    pub fn new(radius: f64, width: usize, height: usize) -> Self {
        let reach = |side: usize| (radius.ceil() as i64).min(side as i64 - 1);
        let (across, down) = (reach(width), reach(height));
        let squares = (-down..=down).flat_map(|dy| (-across..=across).map(move |dx| (dx * dx + dy * dy, dx, dy)));
        let mut steps: Vec<_> = squares.filter(|s| s.0 as f64 <= radius * radius).collect();
        steps.sort_unstable();
        let step =
            |&(d2, dx, dy): &(i64, i64, i64)| (dx as i32, dy as i32, ((d2 as f64).sqrt() * SCALE).round() as i32);
        Self(steps.iter().map(step).collect())
    }
}

/// The edges of the bipartite graph, as adjacency lists in one array.
struct Links {
    first: Vec<u32>,
    links: Vec<(u32, i32)>,
}

impl Links {
    fn of(&self, node: u32) -> &[(u32, i32)] {
        &self.links[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }

    /// All pairs within the disc, or the reason why there are too many.
    fn between(from: &Points, to: &Points, disc: &Disc) -> Result<Self, String> {
        let (mut first, mut links) = (vec![0], Vec::new());
        for &pixel in &from.pixels {
            let (x, y) = ((pixel as usize % from.width) as i32, (pixel as usize / from.width) as i32);
            for &(dx, dy, cost) in &disc.0 {
                let (x, y) = (x + dx, y + dy);
                if x < 0 || y < 0 || x >= to.width as i32 || y >= to.height as i32 {
                    continue;
                }
                let node = to.node[y as usize * to.width + x as usize];
                if node != NONE {
                    links.push((node, cost));
                }
            }
            EDGE_LINKS.check(links.len() as u64)?;
            first.push(links.len() as u32);
        }
        Ok(Self { first, links })
    }
}

/// The partner of every node of both sides, or `NONE`.
struct Matching {
    left: Vec<u32>,
    right: Vec<u32>,
}

impl Matching {
    fn join(&mut self, left: u32, right: u32) {
        self.left[left as usize] = right;
        self.right[right as usize] = left;
    }
}

/// Whether each detected pixel corresponds to a pixel of the truth. As many pixels of the truth have a partner. An error if there
/// are too many pairs to choose from.
pub fn correspond(detected: &Points, truth: &Points, disc: &Disc) -> Result<Vec<bool>, String> {
    let links = Links::between(detected, truth, disc)?;
    let mut matching = Matching { left: vec![NONE; detected.len()], right: vec![NONE; truth.len()] };
    greedy(&links, &mut matching);
    while augment_phase(&links, &mut matching) {}
    let (left, right) = horizontal_part(&links, &matching);
    let mut matched: Vec<bool> = matching.left.iter().map(|&r| r != NONE).collect();
    if !right.is_empty() {
        left.iter().for_each(|&l| matched[l as usize] = false);
        let back = Links::between(truth, detected, disc)?;
        minimum_distance(&right, &back, &left, detected.len()).into_iter().for_each(|l| matched[l as usize] = true);
    }
    Ok(matched)
}

/// A first matching: each pixel gets its nearest free partner. This settles most pixels, so that few augmenting paths
/// are needed.
fn greedy(links: &Links, matching: &mut Matching) {
    for l in 0..matching.left.len() as u32 {
        if let Some(&(r, _)) = links.of(l).iter().find(|(r, _)| matching.right[*r as usize] == NONE) {
            matching.join(l, r);
        }
    }
}

/// One phase of Hopcroft and Karp's algorithm: augments along a maximal set of disjoint shortest paths. Returns false
/// if there is none.
fn augment_phase(links: &Links, matching: &mut Matching) -> bool {
    let mut level = vec![NONE; matching.left.len()];
    let mut queue: Vec<u32> = (0..level.len() as u32).filter(|&l| matching.left[l as usize] == NONE).collect();
    let roots = queue.clone();
    roots.iter().for_each(|&l| level[l as usize] = 0);
    let (mut at, mut last) = (0, NONE);
    while at < queue.len() {
        let l = queue[at];
        at += 1;
        if level[l as usize] >= last {
            break;
        }
        for &(r, _) in links.of(l) {
            let next = matching.right[r as usize];
            if next == NONE {
                last = level[l as usize] + 1;
            } else if level[next as usize] == NONE {
                level[next as usize] = level[l as usize] + 1;
                queue.push(next);
            }
        }
    }
    if last == NONE {
        return false;
    }
    let mut tried = vec![0u32; level.len()];
    roots.into_iter().for_each(|root| augment(root, links, matching, &level, &mut tried));
    true
}

/// Searches a path along the levels from `root` to a free node on the right, and flips the matching along it. A stack
/// instead of recursion, since paths may be long.
fn augment(root: u32, links: &Links, matching: &mut Matching, level: &[u32], tried: &mut [u32]) {
    let mut path = vec![root];
    while let Some(&l) = path.last() {
        let Some(&(r, _)) = links.of(l).get(tried[l as usize] as usize) else {
            path.pop();
            continue;
        };
        tried[l as usize] += 1;
        let next = matching.right[r as usize];
        if next == NONE {
            for &l in &path {
                let (r, _) = links.of(l)[tried[l as usize] as usize - 1];
                matching.join(l, r);
            }
            return;
        }
        if level[next as usize] == level[l as usize] + 1 {
            path.push(next);
        }
    }
}

/// The nodes that alternating paths reach from unmatched nodes on the left: the horizontal part of the
/// Dulmage–Mendelsohn decomposition. In every maximum matching all of its right nodes are matched, with nodes of this
/// part.
fn horizontal_part(links: &Links, matching: &Matching) -> (Vec<u32>, Vec<u32>) {
    let mut seen = vec![false; matching.right.len()];
    let mut left: Vec<u32> = (0..matching.left.len() as u32)
        .filter(|&l| matching.left[l as usize] == NONE && !links.of(l).is_empty())
        .collect();
    let mut right = Vec::new();
    let mut at = 0;
    while at < left.len() {
        for &(r, _) in links.of(left[at]) {
            if !std::mem::replace(&mut seen[r as usize], true) {
                right.push(r);
                left.push(matching.right[r as usize]);
            }
        }
        at += 1;
    }
    right.sort_unstable();
    (left, right)
}

/// The nodes of `left` in the matching of all nodes of `right` that has the minimum sum of distances.
///
/// Successive shortest paths (Jonker and Volgenant 1987). Prices keep the reduced costs of all links non-negative, as
/// Dijkstra's algorithm requires, and free nodes keep the price zero.
fn minimum_distance(right: &[u32], links: &Links, left: &[u32], detected: usize) -> Vec<u32> {
    let mut allowed = vec![false; detected];
    left.iter().for_each(|&l| allowed[l as usize] = true);
    // The right node that owns each left node, and the cost of their link.
    let mut owner_of: Vec<(u32, i32)> = vec![(NONE, 0); detected];
    let mut waiting = Vec::new();
    for &r in right {
        // Links are sorted by distance, so the first one is the nearest.
        let mut open = links.of(r).iter().filter(|(l, _)| allowed[*l as usize]);
        match open.next() {
            Some(&(l, cost)) if owner_of[l as usize].0 == NONE => owner_of[l as usize] = (r, cost),
            _ => waiting.push(r),
        }
    }
    let mut search =
        Search { price: vec![0; detected], distance: vec![i32::MAX; detected], from: vec![(NONE, NONE, 0); detected] };
    waiting.into_iter().for_each(|r| search.assign(r, links, &allowed, &mut owner_of));
    left.iter().copied().filter(|&l| owner_of[l as usize].0 != NONE).collect()
}

/// The state of the shortest-path searches, allocated once for all of them.
struct Search {
    price: Vec<i32>,
    distance: Vec<i32>,
    /// For each left node: the right node from which it was reached, the left node that this one owned, and the cost
    /// of the link.
    from: Vec<(u32, u32, i32)>,
}

impl Search {
    /// Assigns a left node to `start`; other right nodes move along the shortest path to a free left node.
    fn assign(&mut self, start: u32, links: &Links, allowed: &[bool], owner_of: &mut [(u32, i32)]) {
        let (mut heap, mut touched, mut done) = (BinaryHeap::new(), Vec::new(), Vec::new());
        let (mut r, mut owned, mut base) = (start, NONE, 0);
        let end = loop {
            for &(l, cost) in links.of(r).iter().filter(|(l, _)| allowed[*l as usize]) {
                let distance = base + cost - self.price[l as usize];
                if distance < self.distance[l as usize] {
                    if self.distance[l as usize] == i32::MAX {
                        touched.push(l);
                    }
                    self.distance[l as usize] = distance;
                    self.from[l as usize] = (r, owned, cost);
                    heap.push(Reverse((distance, l)));
                }
            }
            let next = loop {
                match heap.pop() {
                    Some(Reverse((distance, l))) if distance > self.distance[l as usize] => (),
                    next => break next,
                }
            };
            let Some(Reverse((distance, l))) = next else { break None };
            let (owner, cost) = owner_of[l as usize];
            if owner == NONE {
                break Some((l, distance));
            }
            done.push(l);
            // Continues from the owner over its matched link, whose reduced cost is zero.
            (r, owned, base) = (owner, l, distance - cost + self.price[l as usize]);
        };
        if let Some((end, length)) = end {
            for &l in &done {
                self.price[l as usize] -= length - self.distance[l as usize];
            }
            let mut l = end;
            while l != NONE {
                let (r, before, cost) = self.from[l as usize];
                owner_of[l as usize] = (r, cost);
                l = before;
            }
        }
        touched.into_iter().for_each(|l| self.distance[l as usize] = i32::MAX);
    }
}
