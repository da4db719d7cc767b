// RocketMQ's official Rust client, unchanged: what it sends and receives, one line each. Run with the address of a gateway.
// It has no recall, no push consumer, and no call that changes the invisible duration.

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use std::collections::HashMap;
use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Done<T> = Result<T, Box<dyn Error>>;

fn configuration() -> ClientOption {
    let given: Vec<String> = args().collect();
    let mut option = ClientOption::default();
    option.set_access_url(&given[1]);
    option.set_access_key(&given[2]);
    option.set_secret_key(&given[3]);
    option.set_long_polling_timeout(Duration::from_secs(1));
    option
}

fn publishing(topics: &[&str]) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(topics.to_vec());
    option
}

fn made(topic: &str, body: &str) -> MessageBuilder {
    let blue = HashMap::from([("color", "blue")]);
    let message = MessageBuilder::builder().set_topic(topic).set_body(body.into());
    message.set_tag("red").set_keys(vec!["key"]).set_properties(blue)
}

async fn send() -> Done<()> {
    let mut producer = Producer::new(publishing(&["news", "lines", "later"]), configuration())?;
    producer.start().await?;
    let soon = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64 + 2;
    for message in [
        made("news", "normal"),
        made("lines", "ordered").set_message_group("g"),
        made("later", "delayed").set_delivery_timestamp(soon),
    ] {
        println!("sent\t{}", producer.send(message.build()?).await?.message_id());
    }
    if let Err(refused) = producer.send(made("orders", "no transaction").build()?).await {
        println!("refused\t{refused}");
    }
    Ok(producer.shutdown().await?)
}

fn check(_transaction: String, message: MessageView) -> TransactionResolution {
    let body = String::from_utf8_lossy(message.body());
    println!("checked\t{body}");
    match &*body {
        "left, committed" => TransactionResolution::COMMIT,
        _ => TransactionResolution::ROLLBACK,
    }
}

async fn transact() -> Done<Producer> {
    let mut producer = Producer::new_transaction_producer(publishing(&["orders"]), configuration(), Box::new(check))?;
    producer.start().await?;
    for body in ["committed", "rolled back", "left, committed", "left, rolled back"] {
        let message = made("orders", body).enable_transaction().build()?;
        let transaction = producer.send_transaction_message(message).await?;
        println!("half\t{}", transaction.message_id());
        match body {
            "committed" => transaction.commit().await?,
            "rolled back" => transaction.rollback().await?,
            _ => (),
        }
    }
    Ok(producer)
}

async fn receive(mut expected: i32) -> Done<()> {
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group("readers");
    option.set_topics(vec!["news", "lines", "later", "orders"]);
    let mut consumer = SimpleConsumer::new(option, configuration())?;
    consumer.start().await?;
    let everything = FilterExpression::new(FilterType::Tag, "*");
    let blue = FilterExpression::new(FilterType::Sql, "color = 'blue'");
    let filters = [("news", &everything), ("lines", &everything), ("later", &everything), ("orders", &blue)];
    let end = Instant::now() + Duration::from_secs(60);
    while expected > 0 && Instant::now() < end {
        for (topic, filter) in filters {
            for message in consumer.receive(topic, filter).await.unwrap_or_default() { // an error: nothing has arrived
                let body = String::from_utf8_lossy(message.body());
                println!("received\t{body}\t{}\t{}", message.message_id(), message.properties()["color"]);
                consumer.ack(&message).await?;
                expected -= 1;
            }
        }
    }
    Ok(consumer.shutdown().await?)
}

#[tokio::main]
async fn main() -> Done<()> {
    send().await?;
    let producer = transact().await?;
    receive(5).await?;
    Ok(producer.shutdown().await?)
}
