use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (bootstrap, topic, group) = (&words[1], &words[2], &words[3]);
    let mut left = words[4].parse::<usize>()?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", group).set("auto.offset.reset", "earliest");

    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let wanted = NewTopic::new(topic, 3, TopicReplication::Fixed(1));
    admin.create_topics(&[wanted], &AdminOptions::new()).await?;

    let producer: FutureProducer = config.create()?;
    for n in 0..left {
        let (key, value, place) = (format!("key-{n}"), format!("value {n}"), n.to_string());
        let headers = OwnedHeaders::new().insert(Header { key: "place", value: Some(&place) });
        let record = FutureRecord::to(topic).key(&key).payload(&value).headers(headers);
        producer.send(record, Duration::from_secs(30)).await.map_err(|(error, _)| error)?;
    }

    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    while left > 0 {
        if let Some(read) = consumer.poll(Duration::from_secs(1)) {
            let message = read?;
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap()).into_owned();
            let header = message.headers().unwrap().get(0).value;
            println!("{}\t{}\t{}", text(message.key()), text(message.payload()), text(header));
            left -= 1;
        }
    }
    Ok(())
}
