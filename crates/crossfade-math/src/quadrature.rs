//! Quadrature rules for the few integrals that have no closed form.

/// A point of a quadrature rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// The point at which the integrand is evaluated.
    pub value: f64,
    /// The weight of that value in the sum; the weights of a rule for a probability sum to one.
    pub weight: f64,
}

/// A point of a quadrature rule in several dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct JointNode {
    /// One coordinate for each dimension.
    pub values: Vec<f64>,
    /// The product of the weights of the coordinates.
    pub weight: f64,
}

/// Gauss–Legendre rule with `n` nodes on [−1, 1] (Newton on the Legendre polynomial).
pub fn gauss_legendre(n: usize) -> Vec<Node> {
    (0..n)
        .map(|i| {
            // The usual first guess for the i-th root, close enough for Newton to find that root and no other.
            let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n as f64 + 0.5)).cos();
            let mut slope = 1.0;
            for _ in 0..100 {
                let (p, dp) = legendre(n, x);
                slope = dp;
                let step = p / dp;
                x -= step;
                if step.abs() < 1e-15 {
                    break;
                }
            }
            Node { value: x, weight: 2.0 / ((1.0 - x * x) * slope * slope) }
        })
        .collect()
}

/// P_n(x) and its derivative.
fn legendre(n: usize, x: f64) -> (f64, f64) {
    let (mut p, mut before) = (1.0, 0.0);
    for k in 0..n {
        let k = k as f64;
        (p, before) = (((2.0 * k + 1.0) * x * p - k * before) / (k + 1.0), p);
    }
    (p, n as f64 * (x * p - before) / (x * x - 1.0))
}

/// The standard normal distribution as `2n` weighted nodes: Gauss–Legendre on [−8, 8]. The tails outside have a
/// probability of 1e-15.
pub fn normal_nodes(n: usize) -> Vec<Node> {
    const REACH: f64 = 8.0;
    let nodes: Vec<_> = gauss_legendre(2 * n)
        .into_iter()
        .map(|q| Node { value: REACH * q.value, weight: q.weight * (-0.5 * (REACH * q.value).powi(2)).exp() })
        .collect();
    // Normalising also replaces the factor 1/√(2π) of the density.
    let total: f64 = nodes.iter().map(|q| q.weight).sum();
    nodes.into_iter().map(|q| Node { weight: q.weight / total, ..q }).collect()
}

/// The standard normal distribution clamped to [−1, 1]: a smooth density inside, and a point mass at each end with
/// half of the remaining probability.
pub fn clamped_normal_nodes(n: usize) -> Vec<Node> {
    let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    let mut nodes: Vec<_> =
        gauss_legendre(n).into_iter().map(|q| Node { weight: q.weight * density(q.value), ..q }).collect();
    let end = 0.5 * (1.0 - nodes.iter().map(|q| q.weight).sum::<f64>());
    nodes.extend([-1.0, 1.0].map(|value| Node { value, weight: end }));
    nodes
}

/// The product rule of `dimensions` independent variables that each have the rule `nodes`; one empty node for 0
/// dimensions.
pub fn joint_nodes(nodes: &[Node], dimensions: usize) -> Vec<JointNode> {
    let mut joint = vec![JointNode { values: vec![], weight: 1.0 }];
    for _ in 0..dimensions {
        joint = (joint.iter())
            .flat_map(|prefix| {
                nodes.iter().map(|next| JointNode {
                    values: [&prefix.values[..], &[next.value]].concat(),
                    weight: prefix.weight * next.weight,
                })
            })
            .collect();
    }
    joint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joint_rules_integrate_products() {
        let nodes = clamped_normal_nodes(8);
        let variance: f64 = nodes.iter().map(|q| q.weight * q.value * q.value).sum();
        for dimensions in 0..4 {
            let joint = joint_nodes(&nodes, dimensions);
            assert_eq!(joint.len(), nodes.len().pow(dimensions as u32));
            let product = |q: &JointNode| q.weight * q.values.iter().map(|v| v * v).product::<f64>();
            let found: f64 = joint.iter().map(product).sum();
            assert!((found - variance.powi(dimensions as i32)).abs() < 1e-12, "{dimensions}: {found}");
        }
    }

    #[test]
    fn normal_moments_are_exact() {
        let moment = |nodes: &[Node], k: i32| nodes.iter().map(|q| q.weight * q.value.powi(k)).sum::<f64>();
        let normal = normal_nodes(32);
        for (k, expected) in [(0, 1.0), (1, 0.0), (2, 1.0), (4, 3.0), (6, 15.0)] {
            assert!((moment(&normal, k) - expected).abs() < 1e-9, "moment {k}: {}", moment(&normal, k));
        }
        // §1.3: the clamped draw has variance 0.5161.
        let clamped = clamped_normal_nodes(32);
        assert!((moment(&clamped, 0) - 1.0).abs() < 1e-14);
        assert!((moment(&clamped, 2) - 0.5161).abs() < 1e-4, "{}", moment(&clamped, 2));
    }
}
