use super::*;

#[test]
fn fio_that_found_an_error_is_told_from_one_that_did_not() {
    let line = |error: &str| {
        let mut fields = vec![
            "3", "fio-3.33", "verify", "0", error, "8192", "4096", "1024",
        ];
        fields.resize(48, "0");
        fields.push("512");
        fields.join(";")
    };
    let good = format!("noise\n{}\n", line("0"));
    assert_eq!(fio_result(&good).unwrap(), "512 writes/s, 1024 reads/s");
    assert!(fio_result(&line("84")).is_err());
    assert!(fio_result("killed").is_err());
}
