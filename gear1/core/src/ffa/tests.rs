//! FF-A's memory calls on the host, whole: registers and descriptors in, tables out. The ghost
//! specification runs beside them.

mod ends;
mod fairness;
mod ghost;
mod histories;
mod hostile;
mod machine;
mod siblings;
