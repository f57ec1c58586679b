//! The plans of the procedures and the pieces of the set, reviewed against what the description demands.

use expect_test::expect;

use super::{KINDS, Options, Tatp};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&Tatp::new(Options::new(2, 1)))
}

/// All columns of one subscriber (section 3.1 of the description): one read, on a snapshot.
#[test]
fn get_subscriber_data() {
    expect![[r#"
        procedure get_subscriber_data (read only)
          #0 get subscriber(input.s_id), must exist
              reads s_id, sub_nbr, bit_1, bit_2, bit_3, bit_4, bit_5, bit_6, bit_7, bit_8, bit_9, bit_10, hex_1, hex_2, hex_3, hex_4, hex_5, hex_6, hex_7, hex_8, hex_9, hex_10, byte2_1, byte2_2, byte2_3, byte2_4, byte2_5, byte2_6, byte2_7, byte2_8, byte2_9, byte2_10, msc_location, vlr_location
              key known at entry
              partition input.s_id
          can fail: missing row of #0
    "#]].assert_eq(&plans().plan("get_subscriber_data"));
}

/// A special facility, and the forwardings that begin at or before a time if it is active. Neither need exist: three
/// rollbacks, all of a transaction that only reads.
#[test]
fn get_new_destination() {
    expect![[r#"
        procedure get_new_destination (read only)
          #0 get special_facility(input.s_id, input.sf_type)
              reads is_active
              key known at entry
              partition input.s_id
              when it changes, run again #1
          #1 scan call_forwarding(input.s_id, input.sf_type)
              reads end_time, numberx
              control from #0
              key known at entry
              partition input.s_id
          loop 0 over the rows of #1
          can fail: user abort after #0
          can fail: user abort after #0
          can fail: user abort after #0 #1
          can fail: overflow after #0 #1
          can fail: out of bounds after #0 #1
    "#]]
    .assert_eq(&plans().plan("get_new_destination"));
}

/// One row of access information, which need not exist.
#[test]
fn get_access_data() {
    expect![[r#"
        procedure get_access_data (read only)
          #0 get access_info(input.s_id, input.ai_type)
              reads data1, data2, data3, data4
              key known at entry
              partition input.s_id
          can fail: user abort after #0
    "#]]
    .assert_eq(&plans().plan("get_access_data"));
}

/// Two writes that need nothing of each other; the second row need not exist, and then the first is undone.
#[test]
fn update_subscriber_data() {
    expect![[r#"
        procedure update_subscriber_data
          #0 update subscriber(input.s_id), must exist
              writes bit_1
              key known at entry
              partition input.s_id
          #1 update special_facility(input.s_id, input.sf_type)
              writes data_a
              key known at entry
              partition input.s_id
          can fail: missing row of #0
          can fail: out of memory of #0
          can fail: out of memory of #1
          can fail: user abort after #1
    "#]]
    .assert_eq(&plans().plan("update_subscriber_data"));
}

/// The subscriber is found by number and changed by key.
#[test]
fn update_location() {
    expect![[r#"
        procedure update_location
          #0 get subscriber by by_number(input.sub_nbr), must exist
              reads s_id
              index by_number: reads keys
              key known at entry
              partition unknown or any
              when it changes, run again #1
          #1 update subscriber(#0.s_id), must exist
              writes vlr_location
              key from #0
              key known after #0
              partition #0.s_id
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: out of memory of #1
    "#]]
    .assert_eq(&plans().plan("update_location"));
}

/// The subscriber by number, its special facilities, and a row inserted that must be new. What the description leaves to a
/// violated key is asked before, so that it is a rollback and not a failure.
#[test]
fn insert_call_forwarding() {
    expect![[r#"
        procedure insert_call_forwarding
          #0 get subscriber by by_number(input.sub_nbr), must exist
              reads s_id
              index by_number: reads keys
              key known at entry
              partition unknown or any
              when it changes, run again #1 #2 #3
          #1 scan special_facility(#0.s_id)
              reads sf_type
              key from #0
              key known after #0
              partition #0.s_id
              when it changes, run again #2 #3
          #2 get call_forwarding(#0.s_id, input.sf_type, input.start_time)
              reads keys
              key from #0
              control from #1
              key known after #0
              partition #0.s_id
              when it changes, run again #3
          #3 insert call_forwarding(#0.s_id, input.sf_type, input.start_time)
              changes keys
              key from #0
              control from #1 #2
              rows perhaps from #2
              key known after #0
              partition #0.s_id
          loop 0 over the rows of #1
          can fail: missing row of #0
          can fail: duplicate key of #3
          can fail: out of memory of #3
          can fail: user abort after #1
          can fail: user abort after #1 #2
    "#]]
    .assert_eq(&plans().plan("insert_call_forwarding"));
}

/// The subscriber by number, and a row deleted that need not be there.
#[test]
fn delete_call_forwarding() {
    expect![[r#"
        procedure delete_call_forwarding
          #0 get subscriber by by_number(input.sub_nbr), must exist
              reads s_id
              index by_number: reads keys
              key known at entry
              partition unknown or any
              when it changes, run again #1
          #1 delete call_forwarding(#0.s_id, input.sf_type, input.start_time)
              changes keys
              key from #0
              key known after #0
              partition #0.s_id
          can fail: missing row of #0
          can fail: user abort after #1
    "#]]
    .assert_eq(&plans().plan("delete_call_forwarding"));
}

/// Numbers lead to the same subscribers for ever and special facilities are never added or removed, so those look-ups stand
/// before the rest. Rollbacks are safe: UPDATE_SUBSCRIBER_DATA writes twice and may fail after either, so both are in the
/// piece that decides; all others roll back before they write or where they do.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        delete_call_forwarding: 2 pieces
          0 buffered: 0 get subscriber by by_number
          1 decisive, conflicting: 1 delete call_forwarding

        get_access_data: 1 piece
          0 decisive: 0 get access_info

        get_new_destination: 2 pieces
          0 buffered: 0 get special_facility
          1 decisive, conflicting: 1 scan call_forwarding

        get_subscriber_data: 1 piece
          0 decisive, conflicting: 0 get subscriber

        insert_call_forwarding: 3 pieces
          0 buffered: 0 get subscriber by by_number
          1 buffered: 1 scan special_facility
          2 decisive, conflicting: 2 get call_forwarding | 3 insert call_forwarding
          merged #2 and #3: SC-cycle insert_call_forwarding #2 –C call_forwarding (keys)– delete_call_forwarding #1 –C call_forwarding (keys)– #3 –S–

        update_location: 2 pieces
          0 buffered: 0 get subscriber by by_number
          1 decisive, conflicting: 1 update subscriber

        update_subscriber_data: 1 piece
          0 decisive, conflicting: 0 update subscriber | 1 update special_facility
          merged #0 and #1: SC-cycle update_subscriber_data #0 –C subscriber (bit_1)– update_subscriber_data #0 –S– #1 –C special_facility (data_a)– #1 –S–

        C-edges, between any two instances
          delete_call_forwarding #1 – delete_call_forwarding #1: call_forwarding (keys)
          delete_call_forwarding #1 – get_new_destination #1: call_forwarding (keys)
          delete_call_forwarding #1 – insert_call_forwarding #2: call_forwarding (keys)
          delete_call_forwarding #1 – insert_call_forwarding #3: call_forwarding (keys)
          get_new_destination #1 – insert_call_forwarding #3: call_forwarding (keys)
          get_subscriber_data #0 – update_location #1: subscriber (vlr_location)
          get_subscriber_data #0 – update_subscriber_data #0: subscriber (bit_1)
          insert_call_forwarding #2 – insert_call_forwarding #3: call_forwarding (keys)
          insert_call_forwarding #3 – insert_call_forwarding #3: call_forwarding (keys)
          update_location #1 – update_location #1: subscriber (vlr_location)
          update_subscriber_data #0 – update_subscriber_data #0: subscriber (bit_1)
          update_subscriber_data #1 – update_subscriber_data #1: special_facility (data_a)

        the engine sees to it that
          memory for all writes is reserved when an execution begins
    "#]].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// The three that only read leave the graph; no transaction adds to a column, so nothing is deferred.
#[test]
fn the_optimized_graph() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        delete_call_forwarding: 2 pieces
          0 buffered: 0 get subscriber by by_number
          1 decisive, conflicting: 1 delete call_forwarding

        get_access_data: read only, on a snapshot

        get_new_destination: read only, on a snapshot

        get_subscriber_data: read only, on a snapshot

        insert_call_forwarding: 3 pieces
          0 buffered: 0 get subscriber by by_number
          1 buffered: 1 scan special_facility
          2 decisive, conflicting: 2 get call_forwarding | 3 insert call_forwarding
          merged #2 and #3: SC-cycle insert_call_forwarding #2 –C call_forwarding (keys)– delete_call_forwarding #1 –C call_forwarding (keys)– #3 –S–

        update_location: 2 pieces
          0 buffered: 0 get subscriber by by_number
          1 decisive, conflicting: 1 update subscriber

        update_subscriber_data: 1 piece
          0 decisive, conflicting: 0 update subscriber | 1 update special_facility
          merged #0 and #1: SC-cycle update_subscriber_data #0 –C subscriber (bit_1)– update_subscriber_data #0 –S– #1 –C special_facility (data_a)– #1 –S–

        C-edges, between any two instances
          delete_call_forwarding #1 – delete_call_forwarding #1: call_forwarding (keys)
          delete_call_forwarding #1 – insert_call_forwarding #2: call_forwarding (keys)
          delete_call_forwarding #1 – insert_call_forwarding #3: call_forwarding (keys)
          insert_call_forwarding #2 – insert_call_forwarding #3: call_forwarding (keys)
          insert_call_forwarding #3 – insert_call_forwarding #3: call_forwarding (keys)
          update_location #1 – update_location #1: subscriber (vlr_location)
          update_subscriber_data #0 – update_subscriber_data #0: subscriber (bit_1)
          update_subscriber_data #1 – update_subscriber_data #1: special_facility (data_a)

        static: access_info, special_facility, subscriber, subscriber.by_number

        the engine sees to it that
          memory for all writes is reserved when an execution begins
    "#]].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    let mix = [1; KINDS.len()];
    trial::assert_runs_as_planned(&Tatp::new(Options { mix, ..Options::new(40, 1) }));
}
