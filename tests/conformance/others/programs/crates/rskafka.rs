use chrono::Utc;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use std::collections::BTreeMap;

// The library has no groups: the partition is read from its first offset.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (bootstrap, topic, count) = (&words[1], &words[2], words[4].parse::<usize>()?);
    let client = ClientBuilder::new(vec![bootstrap.clone()]).build().await?;
    client.controller_client()?.create_topic(topic, 1, 1, 5_000).await?;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let records = (0..count).map(|n| Record {
        key: Some(format!("key-{n}").into_bytes()),
        value: Some(format!("value {n}").into_bytes()),
        headers: BTreeMap::from([("place".to_owned(), n.to_string().into_bytes())]),
        timestamp: Utc::now(),
    });
    partition.produce(records.collect(), Compression::Zstd).await?;
    let mut next = partition.get_offset(OffsetAt::Earliest).await?;
    while next < count as i64 {
        let (found, _) = partition.fetch_records(next, 1..1_000_000, 1_000).await?;
        for each in found {
            let text = |bytes: &Option<Vec<u8>>| String::from_utf8_lossy(bytes.as_ref().unwrap()).into_owned();
            let header = String::from_utf8_lossy(&each.record.headers["place"]).into_owned();
            println!("{}\t{}\t{}", text(&each.record.key), text(&each.record.value), header);
            next = each.offset + 1;
        }
    }
    Ok(())
}
