//! The hostile driver's attacks on a card with two pairs of queues, on its frames and on its
//! commands.

use hostile_driver::Kind;

use crate::sys::tap::testing::leave_network;
use crate::testing::Guest;
use crate::worker::tests::hostile::Attacked;

use super::pairs::several;

#[test]
fn a_card_with_two_pairs_withstands_all_attacks() {
    if !leave_network() {
        return;
    }
    let (net, _wire) = several(2);
    let mut attacked = Attacked::over(Guest::new(Box::new(net)));
    let counts = attacked.attack(Kind::Net, 400, 7);
    assert_eq!(attacked.violations, [""; 0], "{counts:?}");
    assert!(counts.broken > 200 && counts.honest > 200, "{counts:?}");
}
