# Mails to the administrators and users of the billing account. A budget stops nothing.
resource "google_billing_budget" "month" {
  count = var.billing_account == null ? 0 : 1

  billing_account = var.billing_account
  display_name    = var.name

  budget_filter {
    projects        = ["projects/${data.google_project.this.number}"]
    calendar_period = "MONTH"
  }

  amount {
    specified_amount {
      units = tostring(var.monthly_budget)
    }
  }

  threshold_rules {
    threshold_percent = 0.5
  }

  threshold_rules {
    threshold_percent = 0.9
  }

  threshold_rules {
    threshold_percent = 1
  }

  depends_on = [google_project_service.apis]
}
