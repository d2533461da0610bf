//! Tests of places in the source.

use super::{Place, Spans};

const ANNOTATED: &str = r#"/dts-v1/;

/ { /* my manifests/a.dts:3:3-20:3 */
	version = <0x01>; /* my manifests/a.dts:4:2-4:16 */

	vms { /* my manifests/a.dts:5:6-19:4, b.dtsi:1:1-2:2 */

		label: linux { /* my manifests/a.dts:6:9-18:5 */
			cmdline = "a; { /* b */ };"; /* my manifests/a.dts:7:4-7:30 */
			may-power-off; /* my manifests/a.dts:8:4-8:18 */
			odd line
		}; /* my manifests/a.dts:6:9-18:5 */
	}; /* my manifests/a.dts:5:6-19:4, b.dtsi:1:1-2:2 */
}; /* my manifests/a.dts:3:3-20:3 */
"#;

#[test]
fn finds_nodes_and_properties() {
    let spans = Spans::parse(ANNOTATED);
    let place = |start, end| Place {
        file: "my manifests/a.dts".to_owned(),
        start,
        end,
    };
    let properties = [
        ("/", "version", Some(place((4, 2), (4, 16)))),
        ("/vms/linux", "cmdline", Some(place((7, 4), (7, 30)))),
        ("/vms/linux", "may-power-off", Some(place((8, 4), (8, 18)))),
        ("/vms/linux", "kernel", None),
        ("/gear2", "cpus", None),
    ];
    for (node, property, place) in properties {
        assert_eq!(spans.property(node, property), place.as_ref(), "{property}");
    }
    assert_eq!(spans.node("/"), Some(&place((3, 3), (20, 3))));
    assert_eq!(spans.node("/vms"), Some(&place((5, 6), (19, 4))));
    assert_eq!(spans.node("/vms/linux"), Some(&place((6, 9), (18, 5))));
}

#[test]
fn takes_any_text() {
    for text in [
        "",
        "}; /* x */",
        "{ /* */",
        "a /* b:1:1-2:2 */\n}; /* b:1:1-2:2 */",
        "a /* b:1:1-2 */",
        "a /* b:99999999999999999999:1-2:2 */",
    ] {
        let _ = Spans::parse(text).node("/");
    }
}
