//! A guest's screen by Debian's vhost-user-gpu, driven by Debian's stock driver: what the guest
//! draws is in the screenshot that the device VM takes, also after an end of the program.

use std::fs;
use std::io::Cursor;

use anyhow::{Context as _, Result, ensure};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::workspace;
use xtask::smoke::desktop::screenshot;
use xtask::smoke::device_vm::{enter, leave};
use xtask::smoke::{LONG, shell, shell_within};

/// Size of the screen. docs/device-model.md names the size, which the guest cannot choose.
const WIDTH: u32 = 1024;
const HEIGHT: u32 = 768;
/// Waits for the frame buffer, and takes the text console from it. The text console would write
/// into the picture.
const PREPARE: &str = "until [ -c /dev/fb0 ]; do sleep 0.2; done; \
    for each in /sys/class/vtconsole/*; do grep -q 'frame buffer' $each/name && \
    echo 0 > $each/bind; done; cat /sys/class/graphics/fb0/virtual_size";
/// Draws three stripes. Three colours in stripes: a picture that is swapped, shifted or upside down
/// differs. Bytes are blue, green, red, unused. 2^18 pixels are a third of the screen.
const DRAW: &str = "rm -f /tmp/all; for colour in '\\0\\0\\377\\0' '\\0\\377\\0\\0' '\\377\\0\\0\\0'; do \
    printf $colour > /tmp/a; for n in $(seq 18); do cat /tmp/a /tmp/a > /tmp/b; mv /tmp/b /tmp/a; \
    done; cat /tmp/a >> /tmp/all; done; cat /tmp/all > /dev/fb0; sync; sleep 1";
const STRIPES: [[u8; 3]; 3] = [[255, 0, 0], [0, 255, 0], [0, 0, 255]];
/// Has the driver begin anew. The program that comes next has none of the driver's resources.
const REBIND: &str = "cd /sys/bus/virtio/drivers/virtio_gpu; card=$(ls -d virtio*); \
    echo $card > unbind; echo $card > bind; cd /root";
const KILL_PROGRAM: &str = "old=$(pidof vhost-user-gpu); kill -9 $old; \
    until [ -n \"$(pidof vhost-user-gpu)\" ] && [ \"$(pidof vhost-user-gpu)\" != \"$old\" ]; \
    do sleep 0.1; done; cat /run/gdm.log";

/// Uses the screen from the guest, at whose console a person is before and after. The guest must live
/// on while its card is broken: a shell that answers shows it.
pub(super) fn is_used(session: &mut Session, guest: &VmSummary) -> Result<()> {
    draw(session)?;
    leave(session)?;
    let picture = screenshot(session, &guest.name)?;
    let file = workspace::output_dir().join("screen.png");
    fs::write(&file, &picture)?;
    has_stripes(&picture)?;
    let log = shell_within(session, KILL_PROGRAM, LONG)?;
    ensure!(!log.contains("given up"), "GDM says {log}");
    enter(session, guest)?;
    // The driver's own requests end with errors, as the program has none of its resources.
    shell(session, "hostname")?;
    shell_within(session, REBIND, LONG)?;
    draw(session)?;
    leave(session)?;
    has_stripes(&screenshot(session, &guest.name)?)?;
    enter(session, guest)
}

/// Draws the stripes, in the guest at whose console a person is.
pub(crate) fn draw(session: &mut Session) -> Result<()> {
    let size = shell_within(session, PREPARE, LONG)?;
    ensure!(
        size.contains(&format!("{WIDTH},{HEIGHT}")),
        "the screen has {size}"
    );
    shell_within(session, DRAW, LONG).map(drop)
}

/// Returns the colours of all pixels, three bytes each. A size that differs would put pixels into
/// other rows.
fn decode(picture: &[u8]) -> Result<Vec<u8>> {
    let decoder = png::Decoder::new(Cursor::new(picture));
    let mut reader = decoder.read_info().context("the screenshot is no PNG")?;
    let size = reader.output_buffer_size().context("it has no size")?;
    let mut colours = vec![0; size];
    let info = reader.next_frame(&mut colours)?;
    ensure!(
        (info.width, info.height) == (WIDTH, HEIGHT),
        "it has {info:?}"
    );
    Ok(colours)
}

/// Checks each pixel of a picture. Every pixel counts, since a torn frame may be wrong in few rows.
pub(crate) fn has_stripes(picture: &[u8]) -> Result<()> {
    let colours = decode(picture)?;
    let (pixels, _) = colours.as_chunks::<3>();
    let stripes = pixels.chunks((WIDTH * HEIGHT / 3) as usize);
    for (number, (stripe, colour)) in stripes.zip(STRIPES).enumerate() {
        let others = stripe.iter().filter(|pixel| **pixel != colour).count();
        ensure!(
            others == 0,
            "{others} pixels of stripe {number} are not {colour:?}"
        );
    }
    Ok(())
}
