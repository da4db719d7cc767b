import java.sql.Connection;
import java.sql.DriverManager;

public class Pay {
    public static void main(String[] given) throws Exception {
        try (Connection shop = DriverManager.getConnection(given[0])) {
            shop.setAutoCommit(false);
            try (var row = shop.prepareStatement("INSERT INTO payment VALUES (?)");
                    var message = shop.prepareStatement("SELECT txsaga.send('shop', 'paid', ?, key => ?)")) {
                row.setInt(1, 7);
                row.executeUpdate();
                message.setString(1, "{\"payment\": 7}");
                message.setString(2, "7");
                message.execute();
            }
            shop.commit();
        }
    }
}
