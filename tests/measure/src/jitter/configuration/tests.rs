use workbench::tools::Tools;
use workbench::{manifest, workspace};

use super::*;

#[test]
fn every_manifest_keeps_the_rules() {
    let tools = Tools::prepare().expect("dtc");
    let directory = workspace::output_dir().join("jitter-manifests");
    std::fs::create_dir_all(&directory).expect("a directory");
    let under_gearv = [
        Configuration::Guest,
        Configuration::Emulated,
        Configuration::PassThrough,
    ];
    for configuration in under_gearv {
        for load in [Load::Off, Load::Cpu, Load::Disk, Load::All] {
            let text = configuration.manifest(Serial::SECOND_OF_VIRT, 10, load, 3, Scheduler::Fair);
            let file = directory.join("manifest.dts");
            std::fs::write(&file, text).expect("it can be written");
            let compiled = manifest::compile(&file, &tools, &directory).expect("it keeps them");
            let loads = match load {
                Load::Off => 0,
                Load::Cpu | Load::Disk => 1,
                Load::All => 2,
            };
            assert_eq!(compiled.vms.len(), 1 + loads);
        }
    }
}
