//! Tests of the lanes of every level of this CPU.

use super::*;

type Row = [f32; LANES];

struct Ln<'a>(&'a Row);

impl Work for Ln<'_> {
    type Output = Row;
    #[inline(always)]
    fn run<V: Lanes>(self) -> Row {
        let mut out = [0.0; LANES];
        V::load(self.0).ln().store(&mut out);
        out
    }
}

struct Pow<'a>(&'a Row, f32);

impl Work for Pow<'_> {
    type Output = Row;
    #[inline(always)]
    fn run<V: Lanes>(self) -> Row {
        let mut out = [0.0; LANES];
        V::load(self.0).pow(self.1).store(&mut out);
        out
    }
}

struct Transpose<'a>(&'a [Row; LANES]);

impl Work for Transpose<'_> {
    type Output = [Row; LANES];
    #[inline(always)]
    fn run<V: Lanes>(self) -> [Row; LANES] {
        let mut out = [[0.0; LANES]; LANES];
        let columns = V::transpose(std::array::from_fn(|i| V::load(&self.0[i])));
        columns.iter().zip(&mut out).for_each(|(column, out)| column.store(out));
        out
    }
}

#[test]
fn logarithm_is_exact_to_two_ulp() {
    for level in Level::available() {
        // Every 997th normal number from 1e-10 to the largest, and the neighbourhood of 1.
        let all = (1e-10_f32.to_bits()..f32::MAX.to_bits()).step_by(997);
        let near_one = 1_f32.to_bits() - 4000..1_f32.to_bits() + 4000;
        let mut bits = all.chain(near_one);
        loop {
            let row: Row = std::array::from_fn(|_| bits.next().map_or(1.0, f32::from_bits));
            if row == [1.0; LANES] {
                break;
            }
            for (x, y) in row.iter().zip(level.run(Ln(&row))) {
                let exact = f64::from(*x).ln();
                let error = (f64::from(y) - exact).abs();
                let ulp = f64::from(f32::from_bits(y.abs().to_bits() + 1) - y.abs());
                assert!(error <= 2.0 * ulp, "{level:?}: ln {x:e} = {y:e}, off by {error:e}");
            }
        }
    }
}

#[test]
fn powers_are_exact_to_some_ulp() {
    for level in Level::available() {
        // The portable product of exponent and `y` is rounded: half a unit in 127 is 32 in the result.
        let limit = if level == Level::Portable { 40.0 } else { 4.0 };
        for y in [0.02, 0.25, 0.5, 0.98, 1.0, -0.7, 2.0] {
            let mut bits = (1e-18_f32.to_bits()..1e18_f32.to_bits()).step_by(9973);
            loop {
                let row: Row = std::array::from_fn(|_| bits.next().map_or(1.0, f32::from_bits));
                if row == [1.0; LANES] {
                    break;
                }
                for (x, found) in row.iter().zip(level.run(Pow(&row, y))) {
                    let exact = f64::from(*x).powf(f64::from(y));
                    let error = (f64::from(found) / exact - 1.0).abs() / f64::from(f32::EPSILON);
                    assert!(error <= limit, "{level:?}: {x:e}^{y} = {found:e}, off by {error} ulp");
                }
            }
        }
        let [nan, infinite, tiny, huge, ..] =
            level.run(Pow(&[f32::NAN, f32::INFINITY, 1e-30, 1e30, 1.0, 1.0, 1.0, 1.0], 3.0));
        assert!(nan.is_nan() && infinite.is_nan() && tiny < 2e-38 && huge > 1e38, "{level:?}");
    }
}

#[test]
fn logarithm_of_what_is_not_finite_is_nan() {
    for level in Level::available() {
        for value in [f32::NAN, -f32::NAN, f32::INFINITY] {
            let row = [1.0, value, f32::MAX, value, value, 1e-10, 2.0, value];
            let ln = level.run(Ln(&row));
            assert!(row.iter().zip(ln).all(|(x, y)| x.is_finite() != y.is_nan()), "{level:?}: {ln:?}");
        }
    }
}

struct Products([i32; 4], i32, [i32; 4]);

impl Work for Products {
    type Output = [i32; 4];
    #[inline(always)]
    fn run<V: Lanes>(self) -> [i32; 4] {
        V::add_products(self.0, self.1, &self.2)
    }
}

#[test]
fn products_of_integers_wrap() {
    for level in Level::available() {
        let sums = level.run(Products([1, i32::MAX, -5, 0], 1 << 20, [3, 0, 1 << 12, -1]));
        assert_eq!(sums, [(3 << 20) + 1, i32::MAX, -5, -(1 << 20)], "{level:?}");
        assert_eq!(level.run(Products([i32::MAX; 4], 1, [1; 4])), [i32::MIN; 4], "{level:?}");
    }
}

#[test]
fn transposes() {
    let rows: [Row; LANES] = std::array::from_fn(|i| std::array::from_fn(|j| (8 * i + j) as f32));
    for level in Level::available() {
        let columns = level.run(Transpose(&rows));
        for i in 0..LANES {
            for j in 0..LANES {
                assert_eq!(columns[j][i], rows[i][j]);
            }
        }
    }
}
