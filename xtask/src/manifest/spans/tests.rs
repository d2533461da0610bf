//! Tests of places in the source.

use super::Spans;

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
    let cases = [
        ("/", None, Some("my manifests/a.dts:3:3")),
        ("/", Some("version"), Some("my manifests/a.dts:4:2")),
        ("/vms", None, Some("my manifests/a.dts:5:6")),
        ("/vms/linux", None, Some("my manifests/a.dts:6:9")),
        (
            "/vms/linux",
            Some("cmdline"),
            Some("my manifests/a.dts:7:4"),
        ),
        (
            "/vms/linux",
            Some("may-power-off"),
            Some("my manifests/a.dts:8:4"),
        ),
        ("/vms/linux", Some("kernel"), Some("my manifests/a.dts:6:9")),
        ("/gear2", Some("cpus"), None),
    ];
    for (node, property, place) in cases {
        assert_eq!(spans.find(node, property), place, "{node} {property:?}");
    }
}

#[test]
fn takes_any_text() {
    for text in [
        "",
        "}; /* x */",
        "{ /* */",
        "a /* b:1:1-2:2 */\n}; /* b:1:1-2:2 */",
    ] {
        let _ = Spans::parse(text).find("/", None);
    }
}
