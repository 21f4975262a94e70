//! The search of Nelder and Mead: a minimum of a function of few parameters, without derivatives and without randomness.
use crate::error::Result;

/// The best of `budget` points, from the simplex of `start` and one step along each axis, and its value. Points where the
/// function is not finite are avoided.
pub(super) fn minimise<const N: usize>(
    start: [f64; N],
    steps: [f64; N],
    budget: usize,
    function: &mut dyn FnMut([f64; N]) -> Result<f64>,
) -> Result<([f64; N], f64)> {
    let mut left = budget;
    // None when the budget is used up.
    let mut evaluate = |point: [f64; N]| -> Result<Option<([f64; N], f64)>> {
        if left == 0 {
            return Ok(None);
        }
        left -= 1;
        let value = function(point)?;
        Ok(Some((point, if value.is_finite() { value } else { f64::INFINITY })))
    };
    let mut simplex = vec![];
    for axis in 0..=N {
        let mut point = start;
        if axis > 0 {
            point[axis - 1] += steps[axis - 1];
        }
        simplex.extend(evaluate(point)?);
    }
    while simplex.len() == N + 1 {
        // A stable sort: among equal values the older point stays in front.
        simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, worst) = (simplex[0], simplex[N]);
        let centre: [f64; N] = std::array::from_fn(|k| simplex[..N].iter().map(|(p, _)| p[k]).sum::<f64>() / N as f64);
        let along = |factor: f64| std::array::from_fn(|k| centre[k] + factor * (worst.0[k] - centre[k]));
        let Some(reflected) = evaluate(along(-1.0))? else { break };
        let next = if reflected.1 < best.1 {
            let expanded = evaluate(along(-2.0))?;
            Some(expanded.filter(|expanded| expanded.1 < reflected.1).unwrap_or(reflected))
        } else if reflected.1 < simplex[N - 1].1 {
            Some(reflected)
        } else {
            let outside = reflected.1 < worst.1;
            let contracted = evaluate(along(if outside { -0.5 } else { 0.5 }))?;
            contracted.filter(|contracted| contracted.1 < reflected.1.min(worst.1))
        };
        match next {
            Some(point) => simplex[N] = point,
            None => {
                // Shrink towards the best point.
                let mut shrunk = vec![best];
                for (point, _) in &simplex[1..] {
                    shrunk.extend(evaluate(std::array::from_fn(|k| 0.5 * (point[k] + best.0[k])))?);
                }
                if shrunk.len() <= N {
                    simplex.extend(shrunk);
                    break;
                }
                simplex = shrunk;
            }
        }
    }
    let best = simplex.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    Ok(best.unwrap_or((start, f64::INFINITY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_a_valley_is_found_within_the_budget() {
        let mut calls = 0;
        let mut function = |[x, y, z]: [f64; 3]| {
            calls += 1;
            // Undefined in a part of the space, as refused times are.
            Ok(if x > 3.0 { f64::NAN } else { (x - 1.0).powi(2) + 10.0 * (y - x * x).powi(2) + (z + 0.5).powi(2) })
        };
        let (point, value) = minimise([-1.0, 2.0, 1.0], [0.5, 0.5, 0.5], 300, &mut function).unwrap();
        assert!(value < 1e-4 && (point[0] - 1.0).abs() < 0.05, "{point:?}: {value}");
        assert!(calls <= 300);
    }

    #[test]
    fn a_small_budget_gives_the_best_point_so_far() {
        for budget in 1..12 {
            let mut seen = vec![];
            let mut function = |[x, y]: [f64; 2]| {
                seen.push((x - 2.0).abs() + y * y);
                Ok(seen[seen.len() - 1])
            };
            let (_, value) = minimise([0.0, 1.0], [1.0, 1.0], budget, &mut function).unwrap();
            assert_eq!(seen.len(), budget);
            assert_eq!(value, seen.iter().copied().fold(f64::INFINITY, f64::min));
        }
    }
}
