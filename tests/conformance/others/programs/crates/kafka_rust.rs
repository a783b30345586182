use kafka::consumer::{Consumer, FetchOffset, GroupOffsetStorage};
use kafka::producer::{Producer, Record, RequiredAcks};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (bootstrap, topic, group) = (&words[1], &words[2], &words[3]);
    let mut left = words[4].parse::<usize>()?;
    let mut producer = Producer::from_hosts(vec![bootstrap.clone()])
        .with_ack_timeout(Duration::from_secs(5))
        .with_required_acks(RequiredAcks::All)
        .create()?;
    for n in 0..left {
        producer.send(&Record::from_key_value(topic, format!("key-{n}"), format!("value {n}")))?;
    }
    let mut consumer = Consumer::from_hosts(vec![bootstrap.clone()])
        .with_topic(topic.clone())
        .with_group(group.clone())
        .with_fallback_offset(FetchOffset::Earliest)
        .with_offset_storage(Some(GroupOffsetStorage::Kafka))
        .create()?;
    while left > 0 {
        for set in consumer.poll()?.iter() {
            for message in set.messages() {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                println!("{}\t{}\t-", text(message.key), text(message.value));
                left -= 1;
            }
            consumer.consume_messageset(set)?;
        }
        consumer.commit_consumed()?;
    }
    Ok(())
}
